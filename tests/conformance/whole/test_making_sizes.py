"""How a large model is made small, and where the sizes and options of a constructor are read."""

from __future__ import annotations

from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")
from made_subjects import NET, evidence  # noqa: E402
from torch import nn  # noqa: E402

from conformance.adapters import absent_gpu  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.remaking import otherwise_made  # noqa: E402
from conformance.adapters.whole.sizes import MAX_PARAMETERS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


CACHED = """
@dataclass
class Args:
    dim: int = 4096
    n_layers: int = 24
    n_heads: int = 32
    max_batch_size: int = 32
    vocab_size: int = 32000

class Model(nn.Module):
    def __init__(self, args: Args):
        super().__init__()
        self.embed = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleList(nn.Linear(args.dim, args.dim) for _ in range(args.n_layers))
        self.cache = torch.zeros(args.max_batch_size, args.dim)
"""


def test_the_size_of_a_batch_is_no_width(made):
    model = made("Model", CACHED).fresh()
    assert parameters(model) <= MAX_PARAMETERS
    assert model.embed.weight.shape[1] == 256  # 32 heads, 8 wide
    assert len(model.cache) == 32


STAGES = """
class Stages(nn.Module):
    def __init__(self, width=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24), channels=3, head_dim=32):
        super().__init__()
        self.parts = nn.ModuleList()
        for stage, (depth, heads) in enumerate(zip(depths, num_heads)):
            d = width * 2 ** stage
            assert heads * head_dim == d
            for _ in range(depth):
                self.parts.append(nn.Sequential(nn.Linear(d, 4 * d), nn.Linear(4 * d, d)))
        self.stem = nn.Conv2d(channels, width, 4, 4)
"""


def test_lists_of_sizes_one_for_each_stage_are_scaled_together(made):
    model = made("Stages", STAGES).fresh()
    assert parameters(model) <= MAX_PARAMETERS
    assert len(model.parts) == 8
    assert model.stem.weight.shape[:2] == (24, 3)


EACH_LAYER = """
class Local(nn.Module):
    def __init__(self, dim=768, depth=12, local_heads=(8, 8, 8, 8, 4, 4, 4, 4, 2, 2, 2, 0), chunks=1):
        super().__init__()
        assert len(local_heads) == depth
        self.local_heads = local_heads
        self.layers = nn.ModuleList(nn.Linear(dim, 4 * dim) for _ in range(depth))
"""


def test_a_list_with_a_number_for_each_layer_is_cut_with_them(made):
    local = made("Local", EACH_LAYER)
    assert local.fresh().local_heads == (8, 8)
    assert "local_heads (8, 8, 8" in evidence(local)


PICTURES = """
class Net(nn.Module):
    def __init__(self, img_shape=SHAPE, patch_size=12, embed_dim=768, depth=12, ext_layers=[3, 6, 9, 12]):
        super().__init__()
        assert list(ext_layers) == [3, 6, 9, 12]
        self.img_shape = img_shape
        self.layers = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(12))
"""


@pytest.mark.parametrize(
    ("shape", "small"), [("224", 72), ("(224, 224)", (72, 72)), ("(3, 96, 96)", (3, 36, 36)), ("48", 48)]
)
def test_images_are_scaled_to_few_whole_patches_and_numbers_of_layers_stay(made, shape, small):
    assert made("Net", PICTURES.replace("SHAPE", shape)).fresh().img_shape == small


def test_an_image_stays_where_no_other_size_can_be(made):
    exact = "        assert img_shape == 224\n        self.img_shape"
    net = made("Net", PICTURES.replace("SHAPE", "224").replace("        self.img_shape", exact)).fresh()
    assert net.img_shape == 224
    assert parameters(net) <= MAX_PARAMETERS


OPTION = """
class Net(nn.Module):
    def __init__(self, d_model, act_typ, variant):
        super().__init__()
        self.fc = nn.Linear(d_model, 2)
        self.act = ACTS[act_typ]
        self.how = {"deep": 3, "wide": 4}.get(variant)
        if self.how is None:
            raise ValueError(variant)
"""


def test_a_text_is_a_key_of_the_table_that_it_is_looked_up_in(made):
    acts = "from torch import nn\nACTS = {'Linear': nn.Identity(), 'GELU': nn.GELU(), 'ReLU': nn.ReLU()}\n"
    net = made("Net", "from acts import ACTS\n" + OPTION, {"acts.py": acts}).fresh()
    assert isinstance(net.act, nn.GELU)  # one that bends, before the first
    assert net.how == 3


def test_a_wrapper_gets_the_model_that_its_name_held_before(made):
    text = """
        class Net(nn.Module):
            def __init__(self, ninp, nhid):
                super().__init__()
                self.fc = nn.Linear(ninp, nhid)

        class Wrapper(nn.Module):
            def __init__(self, net):
                super().__init__()
                assert isinstance(net, Net)
                self.net = net

        def run():
            model = Net(6, 12)
            model = Wrapper(
                model
            )
            model.cuda()
    """
    assert made("Wrapper", text).fresh().net.fc.weight.shape == (12, 6)


ON_A_GPU = """
class Args:
    device = "cuda"
    rate = None

class Net(nn.Module):
    def __init__(self, args=Args(), where="cuda:1", map=torch.device("cuda")):
        super().__init__()
        self.places = [torch.zeros(1, device=place).device.type for place in (args.device, where, map)]

class DropBranch(nn.Module):
    def __init__(self, drop_prob=None):
        super().__init__()
        self.rate = drop_prob
"""


def test_a_gpu_that_is_not_there_is_the_processor(made, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert made("Net", ON_A_GPU).fresh().places == ["cpu", "cpu", "cpu"]


def test_sizes_that_stand_in_the_place_of_none_are_scaled(made):
    text = """
        class Net(nn.Module):
            def __init__(self, d_model=None, n_layers=None, vocab_size=None):
                super().__init__()
                d_model = d_model or 1024
                vocab_size = 90000 if vocab_size is None else vocab_size
                self.n_layers = n_layers if n_layers is not None else 3
                self.embed = nn.Embedding(vocab_size, d_model)
    """
    found = made("Net", text)
    assert parameters(found.fresh()) <= MAX_PARAMETERS
    assert "vocab_size 90000 -> 211" in evidence(found)
    assert "d_model=None" not in evidence(found)


CALLS_OF_A_GPU = {
    "cuda of a tensor and a module": ("torch.ones(2).cuda()", "self.fc.cuda()(x.cuda(0))"),
    "a device by its name": ('torch.ones(2, device="cuda")', 'self.fc.to("cuda:0")(x.to("cuda"))'),
    "a default of an inner function": ("ones()", "self.fc(x + ones())"),
}


@pytest.mark.parametrize("style", CALLS_OF_A_GPU)
def test_code_that_names_a_gpu_that_is_not_there_runs(made, monkeypatch, style):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    weights, answer = CALLS_OF_A_GPU[style]
    text = f"""
        def ones(device="cuda"):
            return torch.ones(2, device=device)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weights = {weights}
                self.fc = nn.Linear(2, 2)

            def forward(self, x):
                return {answer}
    """
    assert made("Net", text).fresh()(torch.zeros(3, 2)).device.type == "cpu"


NUMBERED_GPUS = ('f"cuda:{rank}"', '"cuda:%d" % rank', '"cuda:{}".format(rank)', '"cuda:" + str(rank)')


@pytest.mark.parametrize("written", NUMBERED_GPUS)
def test_code_that_names_a_gpu_by_a_number_runs(made, monkeypatch, written):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = f"""
        rank = 0
        device = torch.device({written})

        class Net(nn.Module):
            def forward(self, x):
                return x.to(device)
    """
    assert made("Net", text).fresh()(torch.zeros(3)).device.type == "cpu"


def test_code_that_asks_for_a_gpu_runs_as_it_is(made, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = """
        device = "cuda" if torch.cuda.is_available() else "cpu"

        class Net(nn.Module):
            def forward(self, x):
                return x.to(device) * (2 if x.device.type == "cuda" else 1)
    """
    made("Net", text)
    assert not absent_gpu._STANDING_IN


def test_what_only_drops_gets_a_rate(made):
    assert made("DropBranch", ON_A_GPU).fresh().rate == 0.1


def test_the_length_of_what_is_filled_in_a_loop_is_not_read(made):
    text = """
        class Net(nn.Module):
            def __init__(self, vocab_size, dim):
                super().__init__()
                self.embed = nn.Embedding(vocab_size, dim)

        def run(words):
            index = {'[PAD]': 0, '[MASK]': 1}
            for i, word in enumerate(words):
                index[word] = i + 2
            return Net(len(index), 8)
    """
    assert made("Net", text).fresh().embed.weight.shape == (37, 8)


# --- what is handed on, and what nothing tells ----------------------------------------------------

HANDED = """
class Core(nn.Module):
    def __init__(self, *, dim, depth, latent_dim=512, heads=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(latent_dim, latent_dim * 4) for _ in range(depth))
        self.first = nn.Linear(dim, latent_dim)

class Net(CLASSES):
    def __init__(self, num_tokens, dim, **rest):
        super().__init__(SUPER)
        self.embed = nn.Embedding(num_tokens, dim)
        CALL
"""
HANDS = {
    "to a part": ("nn.Module", "", "self.core = Core(dim=dim, **rest)"),
    "to its base": ("Core", "dim=dim, **rest", "self.core = self"),
}


@pytest.mark.parametrize(("base", "of_super", "call"), HANDS.values(), ids=HANDS)
def test_what_is_handed_on_to_another_constructor_is_given_too(made, base, of_super, call):
    text = HANDED.replace("CLASSES", base).replace("SUPER", of_super).replace("CALL", call)
    net = made("Net", text)
    assert len(net.fresh().core.layers) == 2
    assert "depth=2" in evidence(net)
    assert net.options["depth"] == 2


def test_what_is_handed_on_by_what_takes_all_is_given_too(made):
    between = "class Between(nn.Module):\n    def __init__(self, **all):\n        super().__init__()\n"
    between += "        self.core = Core(**all)\n\n\nclass Net(CLASSES)"
    text = HANDED.replace("class Net(CLASSES)", between).replace("CLASSES", "nn.Module").replace("SUPER", "")
    net = made("Net", text.replace("CALL", "self.between = Between(dim=dim, **rest)"))
    assert len(net.fresh().between.core.layers) == 2
    assert net.options["depth"] == 2


def test_defaults_of_what_is_handed_on_are_made_small(made):
    base, of_super, call = HANDS["to a part"]
    text = HANDED.replace("CLASSES", base).replace("SUPER", of_super).replace("CALL", call)
    net = made("Net", text.replace("latent_dim=512", "latent_dim=1024"))
    assert parameters(net.fresh()) <= MAX_PARAMETERS
    assert "latent_dim 1024 -> " in evidence(net)


def test_fields_of_a_config_whose_names_say_nothing_get_a_number(made):
    text = """
        @dataclass
        class Dims:
            n_mels: int
            n_audio_state: int
            n_audio_layer: int

        class Net(nn.Module):
            def __init__(self, dims: Dims):
                super().__init__()
                self.conv = nn.Conv1d(dims.n_mels, dims.n_audio_state, 3)
                self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(dims.n_audio_layer))
    """
    net = made("Net", text).fresh()
    assert net.conv.weight.shape == (32, 16, 3)
    assert len(net.layers) == 2


def test_an_option_that_says_nothing_of_the_model_may_be_unknown(made):
    text = """
        import argparse
        CONFIGS = {"small": dict(width=6, inner=12), "large": dict(width=60, inner=120)}

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.fc = nn.Linear(config["width"], config["inner"])

        def setup(args):
            config = CONFIGS[args.model_type]
            return args, Net(config)

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--model_type", choices=["small", "large"], default="small")
            args = parser.parse_args()
            args.n_gpu = torch.cuda.device_count()
            args, model = setup(args)
    """
    assert made("Net", text).fresh().fc.weight.shape == (12, 6)


def test_settings_inside_settings_are_made_small(made):
    text = """
        class Config:
            def __init__(self, **fields):
                self.fields = Held(fields)

        class Held(dict):
            pass

        def big():
            return Config(inner=Config(width=4096))

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                width = config.fields["inner"].fields["width"]
                self.fc = nn.Linear(width, width)

        CONFIG = big()

        def run():
            Net(CONFIG)
    """
    assert parameters(made("Net", text).fresh()) <= MAX_PARAMETERS


def test_a_config_is_told_from_the_class_of_a_result(made):
    text = """
        @dataclass
        class TinyConfig:
            width: int = 6
            labels: int = 3

        @dataclass
        class ClassifierOutput:
            logits: torch.Tensor

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.fc = nn.Linear(config.width, config.labels)
    """
    assert made("Net", text).fresh().fc.weight.shape == (3, 6)


PARSER = """
import argparse

def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", default=6, type=int)
    parser.add_argument("--rate", default=0.2, type=float)
    return parser
"""


@pytest.mark.parametrize("where", ["model.py", "train.py"])
def test_options_that_nothing_hands_over_are_those_of_the_files_parser(made, where):
    text = """
        class Net(nn.Module):
            def __init__(self, item_num, args):
                super().__init__()
                self.items, self.drop = nn.Embedding(item_num + 1, args.units), nn.Dropout(args.rate)
    """
    net = made("Net", (PARSER if where == "model.py" else "") + dedent(text), {"train.py": PARSER})
    assert net.fresh().items.weight.shape == (38, 6)
    assert net.fresh().drop.p == 0.2


def test_settings_that_are_items_of_an_object_take_changes(made):
    text = """
        class ConfigDict:
            def __init__(self, fields):
                object.__setattr__(self, "_fields", dict(fields))
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return self._fields[name]
            def __setattr__(self, name, value):
                self._fields[name] = value
            def keys(self): return self._fields.keys()
            def items(self): return self._fields.items()
            def __getitem__(self, name): return self._fields[name]
            def __setitem__(self, name, value): self._fields[name] = value
            def __deepcopy__(self, memo): return ConfigDict(copy.deepcopy(self._fields, memo))

        CONFIGS = {"small": ConfigDict(dict(width=6, part=ConfigDict(dict(dropout_rate=0.1))))}

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.fc, self.drop = nn.Linear(config.width, 2), nn.Dropout(config.part["dropout_rate"])

        def run():
            Net(CONFIGS["small"])
    """
    net = made("Net", text)
    assert net.fresh().drop.p == 0.1
    assert net.fresh(dropout=0.0).drop.p == 0.0


# --- notebooks ------------------------------------------------------------------------------------

NOTEBOOK = """{"cells": [
    {"cell_type": "markdown", "source": ["Net(1, 1)"]},
    {"cell_type": "code", "source": ["%matplotlib inline\\n", "!pip install x\\n", "width = 6"]},
    {"cell_type": "code", "source": "no python at all ("},
    {"cell_type": "code", "source": ["net = Net(width,\\n", "    12)\\n", "fail()"]}
]}"""


def test_a_class_is_constructed_as_a_notebook_tells_which_is_never_run(made):
    net = made("Net", NET, {"show.ipynb": NOTEBOOK})
    assert net.fresh().fc.weight.shape == (12, 6)
    assert "show.ipynb cell 3 Net(width, 12)" in evidence(net)


@pytest.mark.parametrize("text", ["{no json", "[1]", "{}", '{"cells": [{"cell_type": "code"}]}', '{"cells": [1]}', ""])
def test_a_broken_notebook_tells_nothing_and_breaks_nothing(made, text):
    net = made("Net", NET, {"a.ipynb": text, "train.py": "Net(6, 12)"})
    assert net.fresh().fc.weight.shape == (12, 6)


def test_the_words_of_a_vocabulary_are_no_options(made):
    text = """
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(n_words, d_model), nn.Linear(d_model, n_words)

        def forward(self, ids):
            return self.head(self.table(ids))

    if __name__ == "__main__":
        words = {"p": 0, "depth": 1, "rate": 2, "heads": 3}
        n_words = len(words)
        d_model = 16
        model = Tagger()
    """
    net = made("Tagger", text)
    assert net.fresh().head.out_features == 4
    with pytest.raises(NotProvided, match="no option for dropout"):
        net.fresh(dropout=0.5)


def test_a_default_in_the_place_of_an_argument_that_nothing_tells_is_scaled_too(made):
    text = """
        def build(vocab, width=1024, layers=12) -> nn.Module:
            stack = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
            return nn.Sequential(nn.Embedding(vocab, width), stack)
    """
    calls = "from model import build\nbuild(len(open('words').read()), width=read().width, layers=read().layers)\n"
    found = made("build", text, {"train.py": calls})
    assert "width 1024 -> " in evidence(found)
    assert sum(p.numel() for p in found.fresh().parameters()) < 3_000_000


def test_a_model_that_fits_together_at_its_own_sizes_only_is_run_at_these(made):
    text = """
        class Patches(nn.Module):
            def __init__(self, width=1024):
                super().__init__()
                self.map = nn.Linear(12, width)

            def forward(self, images):
                pieces = images.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5)
                return self.map(pieces.flatten(3).flatten(1, 2))

        class Net(nn.Module):
            def __init__(self, width=1024, n_layers=4):
                super().__init__()
                self.patches = Patches()
                self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))

            def forward(self, images):
                x = self.patches(images)
                for one in self.maps:
                    x = x + one(x)
                return x.mean(1)
    """
    small = made("Net", text)
    assert small.fresh().maps[0].out_features < 1024
    large = small.at_its_own_sizes(10_000_000)
    assert large.fresh().maps[0].out_features == 1024
    assert small.at_its_own_sizes(1_000_000) is None
    found, whole = otherwise_made(iter(()), small, Unresolved("cannot be called"))
    assert found.facts[-1].value == "as they are"
    assert whole.calling.main.shape[0] == 3


ASSERTING = """
class Inner(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        assert {inner}, "the inner part wants another size"

class Net(nn.Module):
    def __init__(self, in_channels, max_seq_len, window_seq_len):
        super().__init__()
        assert {outer}, "the lengths do not fit"
        self.inner, self.longest, self.window = Inner(in_channels), max_seq_len, window_seq_len
        self.fc = nn.Linear(in_channels, 4)

    def forward(self, x):
        return self.fc(x)
"""


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("self.size % 32 == 0", "max_seq_len > 0"),
        ("size > 0", "max_seq_len > window_seq_len"),
        ("size > 0", "window_seq_len < max_seq_len"),
    ],
)
def test_sizes_are_what_assertions_ask_of_each_other(made, inner, outer):
    net = made("Net", ASSERTING.format(inner=inner, outer=outer)).fresh()
    assert net.inner.size % 32 == 0 or "size > 0" in inner
    assert net.longest > net.window or "> 0" in outer


@pytest.mark.parametrize("outer", ["max_seq_len > 2 * window_seq_len + 1", "bool(None)", "max_seq_len == 0"])
def test_an_assertion_that_says_no_size_is_told_as_it_is(made, outer):
    with pytest.raises(Unresolved, match="the lengths do not fit"):
        made("Net", ASSERTING.format(inner="size > 0", outer=outer))
