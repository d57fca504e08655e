"""Optimizers and schedules that a file makes for its model: which are judged, and which are conventions."""

import pytest

torch = pytest.importorskip("torch")

from optimizer_styles import SORTED, WHOLE, result  # noqa: E402

HOLDS, RISES = "model-optimizer-holds-every-parameter", "model-schedule-rises-in-warm-up-and-then-falls"
APART = "model-optimizer-treats-norms-apart"
RIGHT = {
    "names in sets": SORTED.format(rule=WHOLE),
    "groups alone": """
def get_param_groups(model, lr=1e-3, layer_decay=0.8):
    held = list(model.parameters())
    return [{"params": [p], "lr": lr * layer_decay ** (len(held) - i)} for i, p in enumerate(held)]
""",
    "what is frozen": """
def make_optimizer(model, lr=1e-3):
    for p in model.wte.parameters():
        p.requires_grad = False
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
""",
}
CONVENTIONS = {
    "the head only": "def make_optimizer(model, lr): return torch.optim.Adam(model.head.parameters(), lr)",
    "a part is left out by its name": SORTED.format(
        rule="""if "wpe" in name:
            continue
        (no_decay if p.ndim < 2 else decay).add(name)"""
    ),
    "fine-tuning": SORTED.format(rule='"""Fine-tuning."""\n        decay.add(name) if p.ndim > 1 else None')
    + "\n# fine-tuning of matrices",
}
WRONG = {
    "neither rule": SORTED.format(
        rule="""if name.endswith("weight") and p.ndim > 1:
            decay.add(name)
        elif name.endswith("bias"):
            no_decay.add(name)"""
    ),
    "comprehensions": """
def configure_optim(model, lr=1e-3, wd=0.1):
    matrices = [p for n, p in model.named_parameters() if p.dim() >= 2]
    vectors = [p for n, p in model.named_parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": wd}], lr=lr)
""",
}
SCHEDULE = """
def make_optimizer(model, lr=1e-3, warmup_steps=10, total_steps=100):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return optimizer, {schedule}
"""
RATES = {
    "warm-up and cosine": (
        "LambdaLR(optimizer, lambda s: s / warmup_steps if s < warmup_steps else "
        "0.5 + 0.5 * math.cos(math.pi * min(1, (s - warmup_steps) / (total_steps - warmup_steps))))",
        "PASS",
    ),
    "one behind another": (
        "SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=warmup_steps), "
        "CosineAnnealingLR(optimizer, total_steps - warmup_steps)], [warmup_steps])",
        "PASS",
    ),
    "the root of the step": (
        "LambdaLR(optimizer, lambda s: min((s + 1) / warmup_steps, (warmup_steps / (s + 1)) ** 0.5))",
        "PASS",
    ),
    "no warm-up at all": ("LambdaLR(optimizer, lambda s: 1.0)", "FAIL"),
    "a share of all steps": (
        "LambdaLR(optimizer, lambda s: s / total_steps if s < warmup_steps else 1 - s / total_steps)",
        "FAIL",
    ),
    "rising for ever": ("LambdaLR(optimizer, lambda s: s / warmup_steps)", "FAIL"),
}


@pytest.mark.parametrize("style", RIGHT)
def test_an_optimizer_that_holds_all_is_right(style, made):
    assert result(made, RIGHT[style], HOLDS).verdict.name == "PASS"


@pytest.mark.parametrize("style", CONVENTIONS)
def test_a_part_that_is_meant_to_be_left_out_is_a_note(style, made):
    assert result(made, CONVENTIONS[style], HOLDS).verdict.name == "NOTE"


@pytest.mark.parametrize("style", WRONG)
def test_what_no_group_takes_is_named(style, made):
    found = result(made, WRONG[style], HOLDS)
    assert found.verdict.name == "FAIL"
    assert "block" in found.diagnosis


def test_a_list_that_is_never_read_is_named(made):
    assert "the list vectors is filled and never read" in result(made, WRONG["comprehensions"], HOLDS).diagnosis


@pytest.mark.parametrize("style", RATES)
def test_the_rates_of_a_schedule(style, made):
    schedule, verdict = RATES[style]
    assert result(made, SCHEDULE.format(schedule=schedule), RISES).verdict.name == verdict


NOAM = "LambdaLR(optimizer, lambda s: {scale}{least}(max(s, 1) ** -0.5, s * warmup_steps ** {power}))"


@pytest.mark.parametrize("scale", ["", "d_model ** -0.5 * "])
@pytest.mark.parametrize(
    ("least", "power", "verdict"), [("min", -1.5, "PASS"), ("min", -0.5, "FAIL"), ("max", -1.5, "FAIL")]
)
def test_a_schedule_that_falls_without_an_end_rises_to_where_it_begins_to_fall(scale, least, power, verdict, made):
    schedule = NOAM.format(scale=scale, least=least, power=power)
    text = SCHEDULE.replace("total_steps=100", "d_model=64").format(schedule=schedule)
    assert result(made, text, RISES).verdict.name == verdict


def test_a_function_beside_a_model_may_sort_its_norms(made):
    assert result(made, SORTED.format(rule=WHOLE), APART).verdict.name == "PASS"
    wrong = SORTED.format(rule=WHOLE).replace('"weight_decay": 0.0', '"weight_decay": weight_decay')
    assert result(made, wrong, APART).verdict.name == "FAIL"


def test_the_line_that_lets_vectors_decay_is_named(made):
    text = """
def make_optimizer(model, lr=1e-3, weight_decay=0.1):
    decay = [p for p in model.parameters() if p.dim() < 2]
    no_decay = [p for p in model.parameters() if p.dim() >= 2]
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr)
"""
    assert result(made, text, APART).place.endswith("if p.dim() < 2]")


def test_a_function_that_asks_for_something_unknown_is_not_provided(made):
    assert result(made, "def make_optimizer(model, ledger): return ledger(model)", HOLDS).verdict.name == "NOT_PROVIDED"


PARTS = {
    "groups of parts": """
def make_optimizer(model, lr=1e-3):
    parts = (model.wte, model.wpe, model.block.norm1, model.block, model.head)
    seen, groups = set(), []
    for part in parts:
        groups.append({"params": [p for p in part.parameters() if p not in seen], "lr": lr})
        seen.update(part.parameters())
    return torch.optim.AdamW(groups, lr=lr)
""",
    "an optimizer for matrices": """
def build_optimizers(model, lr=1e-3, weight_decay=0.1):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    options = {"weight_decay": weight_decay}
    return torch.optim.SGD(matrices, lr=0.02), torch.optim.AdamW(vectors, lr=lr, **options)
""",
}


@pytest.mark.parametrize("style", PARTS)
def test_groups_that_are_made_for_another_reason_are_not_asked_about_decay(style, made):
    assert result(made, PARTS[style], APART).verdict.name == "NOT_PROVIDED"


def test_biases_alone_may_be_kept_from_decay(made):
    text = """
def get_param_groups(model, lr=1e-3, weight_decay=0.1):
    named = model.named_parameters()
    return [{"params": [p], "weight_decay": 0.0 if name.endswith("bias") else weight_decay} for name, p in named]
"""
    assert result(made, text, APART).verdict.name == "PASS"


def test_a_head_that_decays_as_a_whole_does_not_count_as_norms(made):
    text = """
def make_optimizer(model, lr=1e-3, weight_decay=0.1):
    head = set(model.head.parameters())
    body = [p for p in model.parameters() if p not in head]
    matrices, vectors = ([p for p in body if (p.ndim > 1) == wide] for wide in (True, False))
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}, {"params": list(head), "lr": 10 * lr}]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay)
"""
    assert result(made, text, APART).verdict.name == "PASS"


@pytest.mark.parametrize(("groups", "verdict"), [("maps, rest", "PASS"), ("rest, maps", "FAIL")])
def test_tables_may_stand_beside_norms_in_the_group_that_does_not_decay(made, groups, verdict):
    text = """
def param_groups(model, weight_decay=0.05):
    named = list(model.named_parameters())
    maps = [p for n, p in named if p.ndim > 1 and n not in ("wte.weight", "wpe.weight")]
    rest = [p for n, p in named if p.ndim <= 1 or n in ("wte.weight", "wpe.weight")]
    decay, keep = GROUPS
    return [{"params": decay, "weight_decay": weight_decay}, {"params": keep, "weight_decay": 0.0}]
"""
    assert result(made, text.replace("GROUPS", groups), APART).verdict.name == verdict


def test_a_method_of_another_name_makes_no_optimizer_that_is_judged(made):
    probe = "    def probe(self, lr=0.1):\n        return torch.optim.SGD([self.head.weight], lr=lr)\n"
    assert result(made, probe, HOLDS).verdict.name == "NOT_PROVIDED"
