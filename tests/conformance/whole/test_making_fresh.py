"""What fresh modules are like: their seeds, options and sizes; expressions, instances and functions as subjects."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
from made_subjects import CONFIG, GPT, NET, evidence  # noqa: E402

from conformance.adapters import resolve  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole import scaling  # noqa: E402
from conformance.adapters.whole.sizes import MAX_PARAMETERS  # noqa: E402
from conformance.protocol import NotProvided, Refused  # noqa: E402

# --- fresh ----------------------------------------------------------------------------------------


def test_fresh_modules_differ_by_their_seed_only(made):
    net = made("Net", NET + "def run():\n    Net(6, 12)")
    first, again, other = net.fresh(1), net.fresh(1), net.fresh(2)
    assert torch.equal(first.fc.weight, again.fc.weight)
    assert not torch.equal(first.fc.weight, other.fc.weight)
    assert first is not again


SETTINGS_OF_BOTH = """
class Settings:
    def __init__(self, width=16, channels=(8, 16), text_layers=2):
        self.width, self.channels, self.text_layers = width, channels, text_layers

class Pictures(nn.Module):
    def __init__(self, width: int, channels=(32, 64)):
        super().__init__()
        sides = zip((3, *channels), (*channels, width))
        self.maps = nn.Sequential(*(nn.Conv2d(a, b, 1) for a, b in sides))

    def forward(self, image):
        return self.maps(image)

class Both(nn.Module):
    def __init__(self, cfg: Settings):
        super().__init__()
        self.pictures = Pictures(cfg.width, cfg.channels)
        self.texts = nn.ModuleList(nn.Linear(cfg.width, cfg.width) for _ in range(cfg.text_layers))
"""


def test_a_setting_of_a_sibling_is_no_option(made):
    with pytest.raises(NotProvided, match=r"Pictures's constructor has no option for n_layers"):
        made("Pictures", SETTINGS_OF_BOTH).fresh(n_layers=3)
    assert len(made("Both", SETTINGS_OF_BOTH).fresh(n_layers=3).texts) == 3


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
    assert made("GPT", text + CONFIG).fresh(dropout=0.0).drop.p == 0.0, "a config that is left out is made for it"


def test_what_a_script_makes_beside_a_model_is_none_of_its_options(made):
    text = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.width = width\n"
    block = "class Other:\n    def __init__(self, dropout=0.1):\n        self.size = 3\n"
    block += 'if __name__ == "__main__":\n    width = Other(dropout=0.1).size\n'
    with pytest.raises(NotProvided, match=r"Net's constructor has no option for dropout"):
        made("Net", text + block).fresh(dropout=0.0)


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


def test_a_model_that_stays_large_is_made_as_small_as_it_gets(made):
    text = """
    class Large(nn.Module):
        def __init__(self, dim=256, num_heads=8, n_rows=400_000):
            super().__init__()
            self.items = nn.Embedding(n_rows, dim)
    """
    assert made("Large", text).fresh().items.weight.shape == (400_000, 16)


def test_a_model_whose_constructor_takes_long_is_made_smaller(made, monkeypatch):
    monkeypatch.setattr(scaling, "MAX_SECONDS", 0)
    large = made("GPT", GPT + CONFIG)
    assert len(large.fresh().blocks) == 2
    assert "its constructor would take more than 0 s" in evidence(large)


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


def test_a_constructor_that_raises_for_a_change_refuses_it(made):
    text = """
    class Net(nn.Module):
        def __init__(self, n_layers=2):
            super().__init__()
            assert n_layers % 2 == 0, "an even number"
    """
    with pytest.raises(Refused, match=r"Net with n_layers=3 raises AssertionError: an even number"):
        made("Net", text).fresh(n_layers=3)


def test_user_globals_are_left_alone(made):
    text = NET + "        self.seen = DROPOUT\n\nDROPOUT = 0.3\n\ndef run():\n    Net(6, 12)"
    net = made("Net", text)
    assert net.fresh().seen == 0.3
    with pytest.raises(NotProvided):
        net.fresh(dropout=0.0)
    assert sys.modules["model"].DROPOUT == 0.3


def test_a_switch_is_no_size(made):
    text = """
    class Net(nn.Module):
        def __init__(self, use_positions=True, max_len=8):
            super().__init__()
            self.given = (use_positions, max_len)
    """
    assert made("Net", text).fresh(max_len=5).given == (True, 5)


NET_OF_A_FILE = """
class Net(nn.Module):
    def __init__(self, path{default}):
        super().__init__()
        self.head = nn.Linear(4, len(open(path).read()))

    def forward(self, x):
        return self.head(x)

def main():
    Net({given})
"""


@pytest.mark.parametrize(("default", "given"), [("='../settings/size.txt'", ""), ("", "'../settings/size.txt'")])
def test_a_path_may_be_meant_from_the_folder_of_its_file(made, default, given):
    files = {"settings/size.txt": "seven.."}
    text = NET_OF_A_FILE.format(default=default, given=given)
    assert made("Net", text, files, "models/model.py").fresh().head.out_features == 7


STEP_BY_STEP = """
class Block(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.map = nn.Linear(d_model, d_model)

    def forward(self, x):
        return x + self.map(x).relu()

class Net(nn.Module):
    def __init__(self, embed, layers: nn.ModuleList, head):
        super().__init__()
        self.embed, self.layers, self.head = embed, layers, head

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def build_net(vocab_size: int, d_model: int = 16, N: int = 2) -> Net:
    blocks = []
    for _ in range(N):
        blocks.append(Block(d_model))
    return Net(nn.Embedding(vocab_size, d_model), nn.ModuleList(blocks), nn.Linear(d_model, vocab_size))
"""


def test_a_list_that_is_filled_step_by_step_is_not_taken_for_an_empty_one(made, tmp_path):
    made("build_net", STEP_BY_STEP)
    whole = resolve(f"{tmp_path / 'model.py'}:Net").whole
    assert [type(layer).__name__ for layer in whole.module.layers] == ["Block"] * 2
