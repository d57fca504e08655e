"""How a class is constructed: styles of the field, each a file of its own with calls, configs and names."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
from made_subjects import CONFIG, GPT, NET, evidence  # noqa: E402
from torch import nn  # noqa: E402

# --- calls in the user's own file -----------------------------------------------------------------

CALLS = {
    "positional": "net = lambda: Net(6, 12)",
    "arithmetic": "def run():\n    return Net(2 * 3, 4 * 3).parameters()",
    "keywords in another order": "def run():\n    Net(nhid=12, ninp=6)",
    "names of the function": "def run():\n    width = 6\n    inner = width * 2\n    Net(width, inner)",
    "a name that is set again": "def run():\n    width = 1\n    width = 6\n    Net(width, 12)\n    width = 2",
    "constants of the file": "WIDTH = 6\nINNER = 2 * WIDTH\n\ndef run():\n    Net(WIDTH, INNER)",
    "unpacked names": "def run():\n    a, b = 6, 12\n    Net(a, b)",
    "a dict of keywords": "def run():\n    sizes = dict(ninp=6, nhid=12)\n    Net(**sizes)",
    "a starred list": "def run():\n    sizes = [6, 12]\n    Net(*sizes)",
    "items of a dict": "def run():\n    p = {'a': 6, 'b': 12}\n    Net(p['a'], p['b'])",
    "a default of a function": "def run(a=6, b=12):\n    Net(a, b)",
    "an argument of a function": "def run(a, b):\n    Net(a, b)\n\ndef main():\n    run(6, b=12)",
    "what a function returns": "def sizes():\n    return 6, 12\n\ndef run():\n    Net(*sizes())",
    "an item set later": "def run():\n    p = dict(a=1)\n    p['a'] = 6\n    p['b'] = 12\n    Net(p['a'], p['b'])",
    "an attribute of a constructor": """
        class Holder:
            def __init__(self):
                self.width = 6

            def run(self):
                return Net(self.width, self.width + 6)
    """,
    "an attribute of a class": "class H:\n    width = 6\n\n    def run(self):\n        return Net(self.width, 12)",
    "a simple namespace": """
        from types import SimpleNamespace

        def run():
            args = SimpleNamespace(ninp=6, nhid=6)
            args.nhid = 12
            Net(args.ninp, args.nhid)
    """,
    "an argparse namespace": "import argparse\n\ndef run():\n    o = argparse.Namespace(a=6, b=12)\n    Net(o.a, o.b)",
    "argparse's defaults": """
        import argparse

        def run():
            parser = argparse.ArgumentParser()
            parser.add_argument("--ninp", "-n", type=int, default=6)
            parser.add_argument("--n-hid", type=int, default=12)
            args = parser.parse_args()
            Net(args.ninp, args.n_hid)
    """,
    "to a device": "def run():\n    device = torch.device('cuda')\n    return Net(6, 12).to(device)",
    "wrapped": "def run():\n    return nn.DataParallel(Net(6, 12).cuda())",
    "a choice": "def run():\n    big = False\n    Net(96 if big else 6, 12)",
    "an or": "def run(width=None):\n    width = width or 6\n    Net(width, 12)",
    "len of something known": "def run():\n    chars = 'abcdef'\n    Net(len(chars), max(3, 12))",
    "a loop's first": "def run():\n    for width in (6, 8):\n        Net(width, 12)",
    "a comprehension's first": "def run():\n    return [Net(width, 12) for width in [6, 8]]",
    "an unused test": "def test_net():\n    raise SystemExit('never run')\n    assert Net(6, 12).fc",
    "the main block": "if __name__ == '__main__':\n    raise SystemExit('never run')\n    Net(6, 12)",
    "a doomed call first": "def bad():\n    Net('a', 12)\n\ndef run():\n    Net(6, 12)",
    "an unknown call first": "def bad(x):\n    Net(x.size(0), 12)\n\ndef run():\n    Net(6, 12)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_class_is_constructed_as_its_own_file_calls_it(made, call):
    net = made("Net", NET + dedent(call))
    assert net.fresh().fc.weight.shape == (12, 6)
    assert net.cls.__name__ == net.name == "Net"
    assert "model.py:" in evidence(net)


OTHER_FILES = {
    "a program next to it": {"train.py": "from model import Net\nwidth = 6\nmodel = Net(width, nhid=2 * width)"},
    "a qualified name": {"train.py": "import model\nnet = model.Net(6, 12)"},
    "another name": {"train.py": "from model import Net as N\nfrom model import Net\nnet = Net(6, 12)"},
    "a test of the repository": {
        "pyproject.toml": "",
        "tests/test_net.py": "def test_it():\n    Net(6, 12)\n    fail()",
    },
    "an example of the repository": {"setup.py": "", "examples/run/main.py": "import model\nmodel.Net(6, 12)\nfail()"},
    "a README's block": {"README.md": "# Net\n\n```python\nfrom model import Net\nnet = Net(6, 12)\nfail()\n```\n"},
    "a README's prompt": {"README.md": "Use it:\n\n```\n>>> net = Net(\n...     6, 12)\n```\n"},
    "a module of settings": {
        "settings.py": "raise SystemExit('never run')\nWIDTH = 6",
        "train.py": "import settings\nfrom settings import WIDTH\nNet(WIDTH, settings.WIDTH * 2)",
    },
    "a config class elsewhere": {
        "settings.py": "fail()\n\n\nclass Config:\n    a = 6\n\n    def __init__(self, b=3):\n        self.b = 4 * b",
        "train.py": "from settings import Config\nc = Config()\nNet(c.a, c.b)",
    },
    "argparse elsewhere": {
        "options.py": "def get():\n    p = P()\n    p.add_argument('--a', default=6)\n    return p.parse_args()",
        "train.py": "from options import get\nargs = get()\nNet(args.a, 12)",
    },
    "a test that asks another file's parser": {
        "options.py": "def parser():\n    p = P()\n    g = p.add_argument_group('sizes')\n"
        "    g.add_argument('--a', default=6)\n    return p",
        "test_net.py": "def given(**words):\n    args = options.parser().parse_args([])\n    return args\n\n\n"
        "def test_it():\n    args = given()\n    Net(args.a, 12)",
    },
    "a JSON file": {"config.json": '{"data": "x", "model": {"ninp": 6, "nhid": 12, "other": 1}}'},
}


@pytest.mark.parametrize("files", OTHER_FILES.values(), ids=OTHER_FILES)
def test_a_class_is_constructed_as_other_files_tell_which_are_never_run(made, files):
    net = made("Net", NET, files)
    assert net.fresh().fc.weight.shape == (12, 6)
    assert any(Path(file).name in evidence(net) for file in files)


def test_a_yaml_file_tells_sizes(made):
    pytest.importorskip("yaml")
    net = made("Net", NET, {"configs/small.yaml": "model:\n  ninp: 6\n  nhid: 12\n"})
    assert net.fresh().fc.weight.shape == (12, 6)


def test_a_class_of_the_same_name_in_another_file_tells_nothing(made):
    net = made("Net", NET, {"other.py": "class Net:\n    pass\n\n\nNet(7, 7)"})
    assert "other.py" not in evidence(net)


# --- configs --------------------------------------------------------------------------------------

CONFIGS = {
    "a dataclass of the file": GPT + CONFIG,
    "annotated": GPT.replace("(self, config)", "(self, config: 'GPTConfig')") + CONFIG + "class B2Config:\n    pass",
    "a dataclass that is called": GPT + CONFIG + "def run():\n    GPT(GPTConfig(n_layer=3))",
    "a config with settings of its own": GPT
    + CONFIG
    + "def run():\n    c = GPTConfig()\n    c.n_layer = 3\n    GPT(c)",
    "keywords and changes": GPT
    + CONFIG
    + "def run():\n    a = dict(n_layer=1)\n    a['n_layer'] = 3\n    GPT(GPTConfig(**a))",
    "class attributes": GPT + CONFIG.replace("@dataclass", "").replace(": int", "").replace(": float", ""),
    "the class itself": GPT + CONFIG + "def run():\n    GPT(GPTConfig)",
    "a static method": GPT
    + "    @staticmethod\n    def default():\n        c = GPTConfig()\n        c.n_layer = 3\n        return c\n"
    + CONFIG
    + "def run():\n    c = GPT.default()\n    c.n_embd = 8\n    GPT(c)",
    "from sizes of the file": GPT
    + CONFIG
    + "n_layer = 3\n\ndef run():\n    GPT(GPTConfig(n_layer=n_layer, vocab_size=30))",
    "a module's instance": GPT + CONFIG + "DEFAULT = GPTConfig()\n\ndef run():\n    GPT(DEFAULT)",
    "a constructor with keywords": GPT
    + "class MyConfig:\n    def __init__(self, n_embd=8, **kw):\n        self.n_embd = n_embd\n"
    + "        self.vocab_size, self.n_layer, self.dropout = 30, 3, 0.1\n        self.__dict__.update(kw)\n",
}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_a_config_is_constructed_first(made, text):
    model = made("GPT", text).fresh()
    assert (len(model.blocks), model.wte.weight.shape) == (3, (30, 8))


def test_a_config_without_a_class_has_every_name_that_says_what_it_means(made):
    model = made("GPT", GPT).fresh()
    assert isinstance(model.wte, nn.Embedding)
    assert 0 < len(model.blocks) <= 4


def test_a_dict_as_a_config(made):
    text = GPT.replace("config.", "config['").replace("_size,", "_size'],").replace("n_embd)", "n_embd'])")
    text = text.replace("n_embd,", "n_embd'],").replace("n_layer)", "n_layer'])").replace("dropout)", "dropout'])")
    text += "SIZES = {'vocab_size': 30, 'n_embd': 8, 'n_layer': 3, 'dropout': 0.1}\n\ndef run():\n    GPT(SIZES)"
    model = made("GPT", text)
    assert len(model.fresh().blocks) == 3
    assert model.fresh(dropout=0.5).drop.p == 0.5
    assert sys.modules["model"].SIZES["dropout"] == 0.1


def test_a_tokenizer_s_size_is_replaced_by_a_small_vocabulary(made):
    text = GPT + CONFIG + "def run(tokenizer):\n    GPT(GPTConfig(vocab_size=len(tokenizer), n_layer=3))"
    model = made("GPT", text).fresh()
    assert len(model.blocks) == 3
    assert model.wte.num_embeddings <= 211


# --- parts ----------------------------------------------------------------------------------------

PARTS = """
class Layer(nn.Module):
    def __init__(self, size, f):
        super().__init__()
        self.size, self.fc = size, nn.Linear(size, f)

class Encoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(N)])
        self.norm = nn.LayerNorm(layer.size)

class Model(nn.Module):
    def __init__(self, encoder, embed):
        super().__init__()
        self.encoder, self.embed = encoder, embed
"""


def test_parts_are_constructed_as_the_factory_does(made):
    factory = """
    def make_model(V, N=2, d_model=6, d_ff=12):
        c = copy.deepcopy
        layer = Layer(d_model, d_ff)
        model = Model(Encoder(c(layer), N), nn.Sequential(nn.Embedding(V, d_model)))
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        return model
    """
    text = PARTS + dedent(factory)
    model = made("Model", text).fresh()
    assert len(model.encoder.layers) == 2
    assert model.encoder.layers[0].fc.weight.shape == (12, 6)
    assert made("make_model", text).fresh().embed[0].embedding_dim == 6
    assert made("Layer", text).fresh().fc.weight.shape == (12, 6)


def test_a_part_that_no_call_shows_is_constructed_by_its_annotation_or_its_name(made):
    text = PARTS.replace("(self, layer, N)", "(self, layer: Layer, N)").replace("size, f", "size, dim_ff")
    model = made("Encoder", text).fresh()
    assert len(model.layers) == 2
    by_name = made("Model", text.replace("encoder, embed", "encoder, d_model")).fresh()
    assert type(by_name.encoder).__name__ == "Encoder"


def test_a_block_is_constructed_as_its_model_constructs_it(made):
    text = """
    class Block(nn.Module):
        def __init__(self, f, index):
            super().__init__()
            self.fc, self.index = nn.Linear(f, f), index

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.f = width // 2
            self.blocks = nn.ModuleList([Block(self.f, i) for i in range(3)])

    def run():
        return Model(12)
    """
    block = made("Block", text).fresh()
    assert (block.fc.in_features, block.index) == (6, 0)


def test_one_module_in_two_places_stays_one(made):
    text = """
    class Two(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.a, self.b = a, b

    def run():
        table = nn.Embedding(5, 4)
        return Two(nn.Sequential(table), table)
    """
    two = made("Two", text).fresh()
    assert two.a[0] is two.b


# --- names ----------------------------------------------------------------------------------------

NAMED = {
    "bentrevett": "input_dim, hid_dim, n_layers, n_heads, pf_dim, dropout, device",
    "heads before the width": "h, d_model, dropout=0.1",
    "one letter": "V, d_model, N, h",
    "expansion": "embed_size, heads, dropout, forward_expansion",
    "camel case": "vocabSize, embedDim, numHeads, numLayers",
    "source and target": "src_vocab_size, trg_vocab_size, src_pad_idx, trg_pad_idx, embed_dim, num_heads",
    "vision": "image_size, patch_size, num_classes, dim, depth, heads, mlp_dim",
    "sentence length": "n_tokens, emb_width, max_sent_len, use_bias: bool",
}


@pytest.mark.parametrize("parameters", NAMED.values(), ids=NAMED)
def test_names_that_no_call_shows_get_small_sizes_that_divide(made, parameters):
    names = [name.split("=")[0].split(":")[0].strip() for name in parameters.split(",")]
    width = next(
        n
        for n in names
        if n.lower() in ("hid_dim", "d_model", "embed_size", "embeddim", "embed_dim", "dim", "emb_width")
    )
    heads = next((n for n in names if n.lower() in ("n_heads", "h", "heads", "numheads", "num_heads")), "1")
    text = f"""
    class Net(nn.Module):
        def __init__(self, {parameters}):
            super().__init__()
            assert {width} % {heads} == 0 and {width} // {heads} >= 4
            self.given = ({", ".join(names)},)
            self.fc = nn.Linear({width}, {width})
    """
    net = made("Net", text)
    given = dict(zip(names, net.fresh().given, strict=True))
    assert all(0 <= v <= 64 for v in given.values() if isinstance(v, (int, float)))
    assert 0 < given.get("dropout", 0.1) < 1
    assert "names of its parameters" in evidence(net)


def test_numbers_without_a_name_are_found_by_trial(made):
    text = """
    class Net(nn.Module):
        def __init__(self, q, r):
            super().__init__()
            assert q == 4 * r
            self.fc = nn.Linear(q, r)
    """
    net = made("Net", text)
    assert net.fresh().fc.in_features == 4 * net.fresh().fc.out_features
    assert "by trial" in evidence(net)


# --- odd styles -----------------------------------------------------------------------------------


def test_keywords_without_names_are_told_by_a_call(made):
    text = """
    class Net(nn.Module):
        def __init__(self, **kwargs):
            super().__init__()
            self.fc = nn.Linear(kwargs["a"], kwargs["b"])
    """
    net = made("Net", text, {"train.py": "from model import Net\nNet(a=6, **{'b': 12})"})
    assert net.fresh().fc.weight.shape == (12, 6)


def test_a_method_of_a_part_an_enumeration_and_an_activation_are_found(made):
    text = """
    import enum
    from typing import Callable

    class Kind(enum.Enum):
        PRE = 1
        POST = 2

    class Net(nn.Module):
        def __init__(self, kind: Kind, act_layer: type[nn.Module], activation: Callable, d_model: int | None):
            super().__init__()
            self.given = (kind, act_layer(), activation(torch.ones(2)), d_model)
    """
    kind, layer, result, width = made("Net", text).fresh().given
    assert kind.name == "PRE"
    assert isinstance(layer, nn.Module)
    assert result.shape == (2,)
    assert isinstance(width, int)


def test_settings_with_sections_serve_as_a_config(made):
    text = """
    class Net(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.fc = nn.Linear(cfg.model.ninp, cfg.model.width)
    """
    files = {"config.json": '{"lr": 0.1, "model": {"ninp": 6, "width": 12}}'}
    net = made("Net", text, files)
    assert net.fresh().fc.weight.shape == (12, 6)
    assert "the settings in config.json" in evidence(net)


def test_a_config_that_holds_itself_is_no_trap(made):
    text = GPT + CONFIG + "def run():\n    c = GPTConfig()\n    c.me = c\n    GPT(c)"
    assert len(made("GPT", text).fresh(dropout=0.0).blocks) == 3


def test_a_name_made_from_itself_is_no_trap(made):
    net = made("Net", NET + "def run(width):\n    width = width + 1\n    run(width)\n    Net(width, 12)")
    assert net.fresh().fc.out_features == 12


def test_a_file_that_is_no_python_and_a_readme_that_is_no_text_tell_nothing(made):
    net = made(
        "Net", NET + "def run():\n    Net(6, 12)", {"old.py": "print 'Net(1, 2)'", "README.md": "```\nNet(\n```"}
    )
    assert net.fresh().fc.weight.shape == (12, 6)


def test_a_vocabulary_that_is_set_later_is_small(made):
    text = GPT.replace("config", "args") + CONFIG.replace("vocab_size: int = 30", "vocab_size: int = -1")
    module = made("GPT", text.replace("self, args", "self, args: 'GPTConfig'")).fresh()
    assert module.wte.num_embeddings == 37


def test_torch_s_parameter_is_no_config(made):
    checked = GPT.replace("self.config = config", "assert isinstance(config, GPTConfig)\n        self.config = config")
    module = made("GPT", "from torch.nn import Parameter\n" + CONFIG + checked).fresh()
    assert module.wte.num_embeddings == 30


def test_an_object_that_the_file_names_like_the_parameter_is_given(made):
    text = """
        class Words:
            size = 23
        tokenizer = Words()
        class Net(nn.Module):
            def __init__(self, dim, tokenizer):
                super().__init__()
                self.wte = nn.Embedding(tokenizer.size, dim)
    """
    assert made("Net", text).fresh().wte.num_embeddings == 23


def test_defaults_of_another_class_that_do_not_fit_together_are_not_taken(made):
    layer = """
    class Layer(nn.Module):
        def __init__(self, d_model, nhead):
            super().__init__()
            self.map, self.heads = nn.Linear(d_model, d_model), nhead

    class Stack(nn.Module):
        def __init__(self, embed_dim=20, num_heads={heads}):
            super().__init__()
            self.layer = Layer(embed_dim, num_heads)
    """
    assert "Layer(d_model=20, nhead=5)" in evidence(made("Layer", layer.format(heads=5)))
    assert "Layer(d_model=32, nhead=4)" in evidence(made("Layer", layer.format(heads=3), file="uneven.py"))


SCRIPT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(nn.Linear(d_model, d_k * n_heads) for _ in range(n_layers))

if __name__ == "__main__":
    words = {"a": 0, "b": 1, "c": 2}
    vocab_size = len(words)
    d_model, n_layers = 24, 3
    d_k = 6
    n_heads = int(open("heads.txt").read())
    net = Net()
"""


def test_sizes_that_only_the_main_block_sets_are_those_that_it_shows(made):
    net = made("Net", SCRIPT).fresh()
    assert net.wte.weight.shape == (3, 24)
    assert len(net.layers) == 3
    assert net.layers[0].out_features == 6 * 4  # what the block reads from a file is small


def test_sizes_of_the_main_block_are_scaled_together(made):
    net = made(
        "Net", SCRIPT.replace("24, 3", "4096, 9").replace("d_k = 6", "d_k = 512").replace("int(open", "8 # ")
    ).fresh()
    assert sum(p.numel() for p in net.parameters()) < 3_000_000
    assert len(net.layers) == 2


def test_images_of_a_guessed_size_hold_whole_patches(made):
    text = """
        class Net(nn.Module):
            def __init__(self, image_size, small_patch_size=12, large_patch_size=16):
                super().__init__()
                assert image_size % small_patch_size == 0 and image_size % large_patch_size == 0
                self.side, self.fc = image_size, nn.Linear(large_patch_size**2, 4)
    """
    assert made("Net", text).fresh().side == 48


def test_a_smaller_call_of_the_user_s_is_taken_where_no_option_makes_the_first_smaller(made):
    text = """
        class Net(nn.Module):
            def __init__(self, kind):
                super().__init__()
                side = dict(base=2000, nano=20)[kind]
                self.fc = nn.Linear(side, side)
    """
    files = {
        "train.py": "from model import Net\nnet = Net('base')\n",
        "train_small.py": "from model import Net\nnet = Net('nano')\n",
    }
    assert made("Net", text, files).fresh().fc.in_features == 20
    assert made("Net", text, {**files, "train_small.py": ""}, file="alone.py").fresh().fc.in_features == 2000


def test_of_named_variants_the_smallest_is_taken_where_the_called_one_is_too_large(made):
    text = """
        class Net(nn.Module):
            def __init__(self, variant):
                super().__init__()
                side, depth = {"base": (3000, 12), "tiny": (20, 2), "large": (4000, 24)}[variant]
                self.layers = nn.ModuleList(nn.Linear(side, side) for _ in range(depth))
    """
    found = made("Net", text, {"train.py": "from model import Net\nnet = Net('large')\n"})
    assert found.fresh().layers[0].in_features == 20
    assert "variant large -> tiny" in evidence(found)
    assert not found.large


def test_an_option_that_is_compared_with_texts_gets_the_first_of_them(made):
    text = """
        class Net(nn.Module):
            def __init__(self, d_model, pool_typ):
                super().__init__()
                if pool_typ.lower() == "cls":
                    self.fc = nn.Linear(d_model, 2)
                elif pool_typ.lower() == "mean":
                    self.fc = nn.Linear(d_model, 3)
                else:
                    raise ValueError(pool_typ)
    """
    assert made("Net", text).fresh().fc.out_features == 2


BLOCKS = """
    {first}
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(width, width)

        def forward(self, x):
            return self.fc(x)
"""


@pytest.mark.parametrize("first", ["import math", "print('it runs')"])
def test_of_files_with_parts_of_a_call_the_definitions_run_alone(made, first, capsys):
    """The file that calls the model runs it, and is only read; of the file of its parts the definitions run."""
    text = """
        class Net(nn.Module):
            def __init__(self, encoder):
                super().__init__()
                self.encoder = encoder

            def forward(self, x):
                return self.encoder(x)
    """
    call = (
        "from layers.block import Block\nfrom model import Net\n\ndef make(n=6):\n    return Net(Block(n))\n\nmake()\n"
    )
    files = {"layers/block.py": BLOCKS.format(first=first), "make_model.py": call, "setup.py": ""}
    net = made("Net", text, files).fresh()
    assert type(net.encoder).__name__ == "Block"
    assert not capsys.readouterr().out


def test_a_part_is_taken_from_its_file_though_another_module_has_its_name(made, monkeypatch):
    """A process may have imported another package called layers: the one beside the model is meant."""
    monkeypatch.setitem(sys.modules, "layers", ModuleType("layers"))
    text = """
        class Net(nn.Module):
            def __init__(self, encoder):
                super().__init__()
                self.encoder = encoder

            def forward(self, x):
                return self.encoder(x)
    """
    call = "from layers.block import Block\nfrom model import Net\n\nNet(Block(6))\n"
    files = {"layers/block.py": BLOCKS.format(first="import math"), "make_model.py": call, "setup.py": ""}
    assert type(made("Net", text, files).fresh().encoder).__name__ == "Block"
