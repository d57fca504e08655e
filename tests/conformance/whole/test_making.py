"""From what the user points at to fresh modules: constructor styles of the field, and what is refused, in one sentence.

Every subject is a file of its own, written for the test, and imported under a name of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from conformance.adapters import SpecificationError, _find, _load, parse  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.making import Made, made_of, subjects_in  # noqa: E402
from conformance.adapters.whole.sizes import MAX_PARAMETERS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402

HEAD = "import copy\nimport torch\nfrom dataclasses import dataclass\nfrom torch import nn\n"
NET = """
class Net(nn.Module):
    def __init__(self, ninp, nhid):
        super().__init__()
        self.fc = nn.Linear(ninp, nhid)
"""
"""A class whose sizes only its calls tell."""

GPT = """
class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.blocks = nn.ModuleList(nn.Linear(config.n_embd, config.n_embd) for _ in range(config.n_layer))
        self.drop = nn.Dropout(config.dropout)
"""
CONFIG = """
@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 30
    n_layer: int = 3
    n_head: int = 2
    n_embd: int = 8
    dropout: float = 0.1
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Made]]:
    """made("GPT", "class GPT...", {"train.py": "..."}): what is made of a name (or expression) of model.py."""
    modules, path = dict(sys.modules), list(sys.path)

    def make(name: str, text: str, files: dict[str, str] | None = None, file: str = "model.py") -> Made:
        for other, content in {**(files or {}), file: HEAD + dedent(text)}.items():
            (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / other).write_text(dedent(content))
        spec = parse(f"{tmp_path / file}:{name}")
        return made_of(_find(_load(spec, ()), spec), spec)

    yield make
    for added in sys.modules.keys() - modules.keys():
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[added]
    sys.path[:] = path


def evidence(made: Made) -> str:
    return "\n".join(map(str, made.facts))


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


# --- fresh ----------------------------------------------------------------------------------------


def test_fresh_modules_differ_by_their_seed_only(made):
    net = made("Net", NET + "def run():\n    Net(6, 12)")
    first, again, other = net.fresh(1), net.fresh(1), net.fresh(2)
    assert torch.equal(first.fc.weight, again.fc.weight)
    assert not torch.equal(first.fc.weight, other.fc.weight)
    assert first is not again


@pytest.mark.parametrize("call", ["GPT(GPTConfig())", "GPT(GPTConfig(n_layer=3, dropout=0.1))"])
def test_options_change_by_their_meaning(made, call):
    model = made("GPT", GPT + CONFIG + f"def run():\n    {call}")
    changed = model.fresh(dropout=0.0, n_layers=5, max_len=9)
    assert (changed.drop.p, len(changed.blocks), changed.config.block_size) == (0.0, 5, 9)
    assert len(model.fresh().blocks) == 3
    assert sys.modules["model"].GPTConfig().n_layer == 3


def test_a_default_changes_by_its_meaning(made):
    text = "class Net(nn.Module):\n    def __init__(self, p=0.1):\n        super().__init__()\n        self.p = p\n"
    assert made("Net", text).fresh(dropout=0.0).p == 0.0
    text = GPT.replace("config)", "config=None)").replace(
        "self.config =", "config = config or GPTConfig()\n        self.c ="
    )
    with pytest.raises(NotProvided, match=r"GPT's constructor has no option for dropout"):
        made("GPT", text + CONFIG).fresh(dropout=0.0)


def test_an_option_that_a_constructor_has_not_is_not_provided(made):
    net = made("Net", NET + "def run():\n    Net(6, 12)")
    with pytest.raises(NotProvided, match=r"Net's constructor has no option for dropout, max_len"):
        net.fresh(max_len=3, dropout=0.0)


# --- large models ---------------------------------------------------------------------------------

LARGE = """
class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        assert cfg.hidden_size % cfg.num_heads == 0
        self.head_dim = cfg.hidden_size // cfg.num_heads
        self.qkv = nn.Linear(cfg.hidden_size, 3 * cfg.hidden_size)

class Large(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.wte = nn.Embedding(cfg.vocab_size, cfg.hidden_size, padding_idx=cfg.pad_token_id)
        self.wpe = nn.Embedding(cfg.max_position_embeddings, cfg.hidden_size)
        self.layers = nn.ModuleList(Attention(cfg) for _ in range(cfg.num_layers))
        self.up = nn.Linear(cfg.hidden_size, cfg.intermediate_size)

@dataclass
class LargeConfig:
    vocab_size: int = 50257
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_heads: int = 12
    num_layers: int = 12
    max_position_embeddings: int = 1024
    pad_token_id: int = 50256
"""


@pytest.mark.parametrize("call", ["", "def run():\n    Large(LargeConfig(num_layers=24, hidden_size=1536))"])
def test_a_large_model_is_made_smaller_with_its_heads_kept(made, call):
    large = made("Large", LARGE + call)
    model = large.fresh()
    assert sum(p.numel() for p in model.parameters()) <= MAX_PARAMETERS
    assert model.wte.num_embeddings == 211
    assert model.wpe.num_embeddings == 64
    assert len(model.layers) == 2
    assert model.layers[0].head_dim >= 2
    assert model.wte.embedding_dim % 12 == 0
    assert "num_layers" in evidence(large)
    assert "50257 -> 211" in evidence(large)
    assert len(large.fresh(n_layers=4).layers) == 4


def test_a_large_model_by_its_defaults_is_made_smaller(made):
    text = """
    class Large(nn.Module):
        def __init__(self, vocab_size=32000, dim=1024, n_layers=8, n_heads=8, ffn_dim=4096):
            super().__init__()
            self.table = nn.Embedding(vocab_size, dim)
            self.layers = nn.ModuleList(nn.MultiheadAttention(dim, n_heads) for _ in range(n_layers))
            self.up = nn.Linear(dim, ffn_dim)
    """
    model = made("Large", text).fresh()
    assert model.table.weight.shape == (211, 64)
    assert model.up.out_features == 256


def test_a_large_model_whose_parts_are_handed_in_is_made_smaller(made):
    text = """
    class Layer(nn.Module):
        def __init__(self, size, attn):
            super().__init__()
            self.attn, self.norm = attn, nn.LayerNorm(size)

    class Large(nn.Module):
        def __init__(self, layer, table):
            super().__init__()
            self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(6)])
            self.table = table

    def make_model(V=30000, d_model=512, h=8):
        attn = nn.MultiheadAttention(d_model, h)
        return Large(Layer(d_model, attn), nn.Embedding(V, d_model))
    """
    for name in ("Large", "make_model"):
        model = made(name, text).fresh()
        assert model.table.num_embeddings == 211
        assert model.table.embedding_dim == model.layers[0].norm.normalized_shape[0] == 64


def test_a_large_model_without_sizes_is_left_as_it_is(made):
    text = "class Large(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    large = made("Large", text + "        self.fc = nn.Linear(2000, 2000)")
    assert large.fresh().fc.in_features == 2000
    assert "as they are, 4,002,000 parameters" in evidence(large)


# --- expressions, instances, functions ------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "layers"),
    [
        ("GPT(GPTConfig(n_layer=1))", 1),
        ("make(n_layer=2)", 2),
        ("GPT(config=GPTConfig(**dict(n_layer=4)))", 4),
        ("(lambda: GPT(GPTConfig(n_layer=5)))()", 5),
    ],
)
def test_an_expression_is_evaluated_in_the_file(made, expression, layers):
    text = GPT + CONFIG + "def make(**kw):\n    print('made')\n    return GPT(GPTConfig(**kw))"
    model = made(expression, text)
    assert len(model.fresh().blocks) == layers
    assert model.cls.__name__ == "GPT"
    assert torch.equal(model.fresh(3).wte.weight, model.fresh(3).wte.weight)


def test_an_expression_has_the_options_of_its_calls(made):
    model = made("GPT(GPTConfig(n_layer=1))", GPT + CONFIG)
    assert model.fresh(dropout=0.0).drop.p == 0.0


def test_an_instance_is_copied(made):
    net = made("model", NET + "model = Net(6, 12)\n")
    held = sys.modules["model"].model
    assert torch.equal(net.fresh().fc.weight, held.fc.weight)
    assert net.fresh() is not held
    assert net.cls is type(held)
    with pytest.raises(NotProvided, match="model's constructor has no option for dropout"):
        net.fresh(dropout=0.0)


FACTORIES = {
    "annotated": "def make(size: int = 6) -> nn.Module:\n    return {0: Net}[0](size, 12)",
    "a name": "def make(size=6):\n    net = Net(size, 12)\n    return net",
    "to a device": "def make(size=6):\n    return Net(size, 12).to('cpu').eval()",
    "through another": "def inner(size):\n    return Net(size, 12)\n\ndef make(size=6):\n    return inner(size)",
    "with its sizes": "def make(size=6):\n    net = Net(size, 12)\n    return net, 12",
}


@pytest.mark.parametrize("text", FACTORIES.values(), ids=FACTORIES)
def test_a_function_that_makes_a_module_is_called(made, text):
    make = made("make", NET + text)
    assert make.fresh().fc.weight.shape == (12, 6)
    assert (make.name, make.cls.__name__) == ("make", "Net")


@pytest.mark.parametrize(
    "text",
    [
        "def test_net():\n    raise SystemExit('run')",
        "def main(width=6):\n    model = Net(width, 12)\n    model.fc.weight.sum().backward()\n    return model",
        "def sizes(n=3):\n    raise SystemExit('run')\n    return n, n",
        "def load(path='x'):\n    raise SystemExit('run')\n    return torch.load(path)",
    ],
)
def test_a_function_that_may_do_anything_is_not_run(made, text):
    name = text.split("(")[0].removeprefix("def ")
    with pytest.raises(Unresolved, match=rf'{name} is a function, .* not run: annotate .* --impl "model.py:{name}\('):
        made(name, NET + text)


# --- what is refused ------------------------------------------------------------------------------


def refusal(made: Callable[..., Made], name: str, text: str) -> str:
    with pytest.raises(SpecificationError) as caught:
        made(name, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_nothing_tells_is_asked_for_by_the_line_to_write(made):
    text = "class Odd(nn.Module):\n    def __init__(self, widget: str, qux: list):\n        super().__init__()\n"
    sentence = refusal(made, "Odd", text)
    assert "nothing shows what widget, qux of Odd should be" in sentence
    assert '--impl "model.py:Odd(widget=..., qux=...)"' in sentence


def test_a_constructor_that_raises_is_quoted_with_its_line(made):
    text = "class Odd(nn.Module):\n    def __init__(self, d_model):\n        raise ValueError('no licence')\n"
    sentence = refusal(made, "Odd", text)
    assert "ValueError: no licence" in sentence
    assert "model.py:7" in sentence
    assert '"model.py:Odd(d_model=...)"' in sentence


def test_what_is_no_module_is_refused(made):
    assert "is no nn.Module but the class Plain" in refusal(made, "Plain", "class Plain:\n    pass\n")
    assert "is no nn.Module but a int" in refusal(made, "sum([1])", "")
    assert "returns a int" in refusal(made, "f", "def f(n=1) -> nn.Module:\n    return n\n")


def test_an_expression_that_raises_or_cannot_be_read_is_refused(made):
    assert "GPT(3) raised NameError" in refusal(made, "GPT(3)", "")
    assert "is no name and no expression" in refusal(made, "GPT(3", "")


def test_a_file_that_reads_data_when_it_is_imported_is_told_so(made):
    sentence = refusal(made, "Net", "text = open('no_such_input.txt').read()\n" + NET)
    assert "importing it opens the file no_such_input.txt" in sentence
    assert "model.py:5" in sentence
    assert "if __name__ == '__main__'" in sentence


# --- finding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{file}:GPT(GPTConfig(n_layer=2))", ("GPT(GPTConfig(n_layer=2))", "")),
        ("{file}:make('a:b')", ("make('a:b')", "")),
        ("{file}:GPT@decoder_lm", ("GPT", "decoder_lm")),
        ("{file}:f(a @ b)", ("f(a @ b)", "")),
        ("{file}", ("", "")),
        ("package.module:f(x={{1: 2}})", ("f(x={1: 2})", "")),
    ],
)
def test_expressions_parse_after_the_colon(tmp_path, text, parts):
    file = tmp_path / "model.py"
    file.write_text("raise SystemError")
    spec = parse(text.format(file=file))
    assert (spec.name, spec.role) == parts


def test_a_package_is_pointed_at_by_its_folder(tmp_path, made):
    made("Net", NET + "def run():\n    Net(6, 12)", {"__init__.py": "from .model import Net\n"})
    spec = parse(str(tmp_path))
    module = _load(spec, ())
    assert subjects_in(module) == ["Net"]


def test_the_root_of_the_repository_is_on_the_path_behind_the_file_s_folder(made):
    files = {
        "requirements.txt": "",
        "shared_sizes.py": "WIDTH = 6",
        "sizes.py": "WIDTH = 7",
        "src/nets/sizes.py": "WIDTH = 6",
    }
    text = "import shared_sizes\nimport sizes\n" + NET + "def run():\n    Net(sizes.WIDTH, 2 * shared_sizes.WIDTH)"
    net = made("Net", text, files, file="src/nets/model.py")
    assert net.fresh().fc.weight.shape == (12, 6)


def test_the_subjects_of_a_file_are_its_public_classes_functions_and_instances_in_order(made):
    text = """
    from torch.nn import Linear
    class Second(nn.Module): pass
    class First(nn.Module): pass
    class _Hidden(nn.Module): pass
    class Config: pass
    def make() -> nn.Module: return First()
    model = Second()
    number = 3
    """
    made("First", text)
    assert subjects_in(sys.modules["model"]) == ["Second", "First", "make", "model"]
