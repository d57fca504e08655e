"""Groups of parameters that files make for their optimizers: which mistakes are told, and which choices are kept."""

import pytest

torch = pytest.importorskip("torch")

from optimizer_styles import HEAD, SORTED, WHOLE, result  # noqa: E402

ONCE, KIND = "model-optimizer-holds-each-parameter-once", "model-optimizer-keeps-all-of-a-kind-from-decay"
RATES = "model-optimizer-slows-lower-layers"
DEEP = HEAD.replace(
    "self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)",
    "self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(3))\n"
    "        self.norm = nn.LayerNorm(8)",
).replace(
    "return self.head(self.block(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])), future))",
    "x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))\n"
    "        for block in self.blocks:\n"
    "            x = block(x, future)\n"
    "        return self.head(self.norm(x))",
)
FOR = SORTED.format
TWO_RULES = """if p.ndim > 1:
            decay.add(name)
        if {also}:
            no_decay.add(name)"""
ONCES = {
    "sets": (FOR(rule=WHOLE), "PASS"),
    "two rules that agree": (FOR(rule=TWO_RULES.format(also="p.ndim < 2")), "PASS"),
    "two rules that do not": (FOR(rule=TWO_RULES.format(also="'norm' in name or p.ndim < 3")), "FAIL"),
    "a part beside the whole": (
        "def make_optimizer(model, lr=1e-3):\n"
        "    return torch.optim.Adam([{'params': model.parameters()}, {'params': model.head.parameters()}], lr=lr)",
        "FAIL",
    ),
    "one group of all modules": (
        "def make_optimizer(model, lr=1e-3):\n"
        "    return torch.optim.SGD([p for m in model.modules() for p in m.parameters()], lr=lr)",
        "FAIL",
    ),
    "modules themselves": (
        "def make_optimizer(model, lr=1e-3):\n"
        "    return torch.optim.SGD([p for m in model.modules() for p in m.parameters(recurse=False)], lr=lr)",
        "PASS",
    ),
    "one model that stands for two": (
        "def make_optimizer(model, net, lr=1e-3):\n"
        "    return torch.optim.SGD([{'params': m.parameters()} for m in (model, net)], lr=lr)",
        "NOT_PROVIDED",
    ),
    "two optimizers": (
        "def make_optimizers(model, lr=1e-3):\n"
        "    matrices = [p for p in model.parameters() if p.ndim > 1]\n"
        "    return torch.optim.SGD(matrices, lr=lr), torch.optim.Adam(list(model.parameters()), lr=lr)",
        "PASS",
    ),
    "halves of a deeper model": (
        "def make_optimizer(model, lr=1e-3):\n"
        "    low, high = model.blocks[:2], model.blocks[-2:]\n"
        "    return torch.optim.SGD([{'params': low.parameters()}, {'params': high.parameters()}], lr=lr)",
        "NOT_PROVIDED",
    ),
}
LISTED = "(no_decay if any(word in name for word in {words}) else decay).add(name)"
TYPES = """kept = any(n == name.rpartition(".")[0] and isinstance(m, nn.LayerNorm) for n, m in model.named_modules())
        (no_decay if kept{also} else decay).add(name)"""
KINDS = {
    "few axes": (WHOLE, "PASS"),
    "words that fit": (LISTED.format(words='["bias", "norm"]'), "PASS"),
    "biases alone": (LISTED.format(words='["bias"]'), "PASS"),
    "norms alone, by type": (TYPES.format(also=""), "PASS"),
    "the words of another model": (LISTED.format(words='["bias", "LayerNorm.weight"]'), "FAIL"),
    "one norm of two": (LISTED.format(words='["bias", "norm1"]'), "FAIL"),
    "biases behind a dot": ("(no_decay if name.endswith('.bias') else decay).add(name)", "FAIL"),
    "a new head decays as a whole": (
        'decay.add(name) if name.startswith("head") else (no_decay if p.ndim < 2 else decay).add(name)',
        "PASS",
    ),
    "nothing is kept": ("decay.add(name)", "NOT_PROVIDED"),
}
LAYERS = """
def layer_groups(name, depth):
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return depth + 1 if name.startswith(("norm", "head")) else 0

def build_param_groups(model, lr=1e-3, layer_decay=0.8, weight_decay=0.1):
    depth, groups = len(model.blocks), {{}}
    for name, p in model.named_parameters():
        layer = layer_groups(name, depth)
        key = (layer, p.ndim > 1)
        if key not in groups:
            groups[key] = {{"params": [], {rate}, "weight_decay": weight_decay * (p.ndim > 1)}}
        groups[key]["params"].append(p)
    {last}return list(groups.values())
"""
LR, DOWN = '"lr": lr * layer_decay ** {power}', "(depth + 1 - layer)"
LAYER_RATES = {
    "lower layers learn more slowly": (LR.format(power=DOWN), "", "PASS"),
    "by a scale of the schedule": (f'"lr_scale": layer_decay ** {DOWN}', "", "PASS"),
    "divided": ('"lr": lr / 2.6 ** (depth + 1 - layer)', "", "PASS"),
    "upper layers learn more slowly": (LR.format(power="layer"), "", "FAIL"),
    "written over": (
        LR.format(power=DOWN),
        "for group in groups.values():\n        group['lr'] = lr\n    ",
        "FAIL",
    ),
    "vectors are written over": (
        LR.format(power=DOWN),
        "for key, group in groups.items():\n        group['lr'] = group['lr'] if key[1] else lr\n    ",
        "NOTE",
    ),
    "the head is slowest": (LR.format(power="(depth + 1 - layer if layer <= depth else depth + 2)"), "", "FAIL"),
}


@pytest.mark.parametrize("style", ONCES)
def test_each_parameter_is_held_once(style, made):
    text, verdict = ONCES[style]
    assert result(made, text, ONCE, DEEP).verdict.name == verdict


def test_what_is_held_twice_is_named(made):
    assert "takes wte.weight twice" in result(made, ONCES["two rules that do not"][0], ONCE, DEEP).diagnosis


@pytest.mark.parametrize("style", KINDS)
def test_all_of_a_kind_are_kept_from_decay(style, made):
    rule, verdict = KINDS[style]
    assert result(made, FOR(rule=rule), KIND, DEEP).verdict.name == verdict


@pytest.mark.parametrize("style", LAYER_RATES)
def test_lower_layers_learn_more_slowly(style, made):
    rate, last, verdict = LAYER_RATES[style]
    assert result(made, LAYERS.format(rate=rate, last=last), RATES, DEEP).verdict.name == verdict


MATRICES_FASTER = """
def make_optimizer(model, lr=1e-3):
    matrices, vectors = ([p for p in model.parameters() if (p.ndim > 1) == wide] for wide in (True, False))
    return torch.optim.Adam([{"params": matrices, "lr": 20 * lr}, {"params": vectors}], lr=lr)
"""


@pytest.mark.parametrize("text", [FOR(rule=WHOLE), MATRICES_FASTER], ids=["one rate", "the same rates in all layers"])
def test_layers_that_learn_alike_are_no_decay_of_layers(text, made):
    assert result(made, text, RATES, DEEP).verdict.name == "NOT_PROVIDED"


def test_a_divisor_keeps_its_own_size(made):
    text = """
def make_optimizer(model, lr=1e-3, layer_decay=2.6):
    rates = [lr / layer_decay ** (len(model.blocks) - n) for n in range(len(model.blocks))]
    groups = [{"params": list(b.parameters()), "lr": rate} for b, rate in zip(model.blocks, rates)]
    return torch.optim.AdamW([*groups, {"params": [*model.head.parameters()]}], lr=lr)
"""
    assert result(made, text, RATES, DEEP).verdict.name == "PASS"
