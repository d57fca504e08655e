"""Composition: correct odd designs get no certain word, and what reaches nothing is told with its line."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from inside_subjects import SUBJECTS, load, mutated, run  # noqa: E402
from torch import nn  # noqa: E402

import conformance.adapters.whole  # noqa: E402
from conformance.adapters.whole.attention import attentions  # noqa: E402
from conformance.adapters.whole.attention_findings import attention_findings  # noqa: E402
from conformance.adapters.whole.copying import copied  # noqa: E402
from conformance.adapters.whole.findings import FINDINGS, Finding  # noqa: E402
from conformance.adapters.whole.norm_places import PLACED, norm_place_findings  # noqa: E402
from conformance.adapters.whole.norms import network_findings, networks, norm_findings  # noqa: E402
from conformance.adapters.whole.record import record  # noqa: E402
from conformance.adapters.whole.residuals import residual_findings, sublayers  # noqa: E402
from conformance.adapters.whole.stream import stacks, stream_findings  # noqa: E402

WHOLE = Path(conformance.adapters.whole.__file__).parent
ODD = load(SUBJECTS / "odd.py")
UNUSED, RESULT = "modules-that-are-made-run", "results-that-are-computed-are-used"
ORDER, ALIKE = "blocks-run-once-and-in-order", "blocks-are-wired-alike"
TWICE, INPUT = "sublayers-add-their-input-once", "sublayers-add-their-own-input"
RESIDUAL, MEMORY = "sublayers-have-a-residual", "decoder-layers-read-one-memory"


def composition(recorded):
    parts = sublayers(recorded, attentions(recorded), networks(recorded))
    return stream_findings([recorded]) + residual_findings(recorded, parts) + norm_place_findings(recorded, parts)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ODD.MODELS)
def test_an_odd_design_is_not_called_wrong(name, training):
    torch.manual_seed(0)
    model, ids = ODD.MODELS[name]().train(training), torch.randint(0, 11, (2, 5))
    recorded = record(model, lambda: model(ids))
    found = composition(recorded) + norm_findings(recorded) + network_findings(recorded)
    found += attention_findings(attentions(recorded))
    assert [finding for finding in found if finding.certain] == []


@pytest.mark.parametrize("file", ["gpt", "llama", "translator"])
def test_usual_models_are_silent(file):
    assert composition(run(load(SUBJECTS / f"{file}.py"))) == []


def test_a_stack_is_read_from_the_calls():
    [stack] = stacks(run(load(SUBJECTS / "gpt.py")))
    assert (stack.path, len(stack.blocks), stack.chained) == ("h", 3, True)
    assert [stack.index(call) for call in stack.calls] == [0, 1, 2]


def test_a_module_that_one_of_the_runs_uses_is_used():
    torch.manual_seed(0)
    model, ids = ODD.MODELS["pre"](), torch.randint(0, 11, (2, 5))
    model.eval()
    part = record(model, lambda: model.norm(model.words(ids)))
    assert any(finding.claim == UNUSED for finding in stream_findings([part]))
    assert stream_findings([part, record(model, lambda: model(ids))]) == []


def test_an_input_that_was_copied_before_the_call_is_the_input():
    torch.manual_seed(0)
    block, x = ODD.PostNorm(), torch.randn(5, 2, 16)
    recorded = record(block, lambda: block(x.transpose(0, 1).clone()))
    assert composition(recorded) == []


def test_the_holes_of_a_list_are_no_blocks():
    model = nn.Module()
    model.pairs = nn.ModuleList(nn.ModuleList([None, nn.Sequential(nn.Linear(3, 3))]) for _ in range(2))
    recorded = record(model, lambda: [pair[1](torch.randn(2, 3)) for pair in model.pairs])
    assert stream_findings([recorded]) == []


def test_a_copy_runs_its_own_parts_also_from_a_function_that_a_part_holds():
    block = nn.Module()
    block.net = nn.Sequential(nn.Linear(4, 4))
    block.forward = block.run = lambda x: block.net(x)
    copy = copied(block)
    with torch.no_grad():
        copy.net[0].weight.zero_()
        copy.net[0].bias.zero_()
    with torch.no_grad():
        assert [bool(one.run(torch.ones(1, 4)).any()) for one in (copy, block)] == [False, True]


LOOP = "for block in self.h:"

# claim, certain, file, lines and what stands instead, the line of the finding
MUTANTS = [
    (UNUSED, True, "gpt", {"x = self.drop(self.wte(idx) + self.wpe(pos))": "x = self.drop(self.wte(idx))"},
     "x = self.drop(self.wte(idx))"),
    (UNUSED, True, "gpt", {"x = self.ln_f(x)": "pass"}, "return self.lm_head(x)"),
    (UNUSED, True, "gpt", {"return self.resid_dropout(self.c_proj(y))": "return self.resid_dropout(y)"},
     "att = self.attn_dropout(att)"),
    (UNUSED, True, "gpt", {"x = x + self.attn(self.ln_1(x))": "x = x + self.attn(x)"},
     "x = x + self.attn(x)"),
    (UNUSED, True, "translator", {"x = self.position(self.tgt_embed(tgt) * math.sqrt(self.d_model))":
                                  "x = self.src_embed(tgt.clamp(max=16)) * math.sqrt(self.d_model)"},
     "x = self.src_embed(tgt.clamp(max=16)) * math.sqrt(self.d_model)"),
    (UNUSED, True, "translator", {"return self.linears[-1](x)": "return x"},
     "self.linears = clones(nn.Linear(d_model, d_model), 4)"),
    (UNUSED, False, "gpt", {"att = self.attn_dropout(att)": "pass"}, "return self.resid_dropout(self.c_proj(y))"),
    (RESULT, True, "gpt", {"x = self.ln_f(x)": "self.ln_f(x)"}, "self.ln_f(x)"),
    (RESULT, True, "gpt", {"x = x + self.mlp(self.ln_2(x))": "self.mlp(self.ln_2(x))"}, "self.mlp(self.ln_2(x))"),
    (RESULT, True, "translator", {"memory = layer(memory, src_mask)": "layer(memory, src_mask)"},
     "layer(memory, src_mask)"),
    (ORDER, True, "gpt", {LOOP: "for block in self.h[:-1]:"}, "x = block(x)"),
    (ORDER, True, "gpt", {"x = block(x)": "x = self.h[0](x)"}, "x = self.h[0](x)"),
    (ORDER, False, "gpt", {LOOP: "for block in [self.h[1], self.h[0], self.h[2]]:"}, "x = block(x)"),
    (RESIDUAL, True, "gpt", {"x = x + self.attn(self.ln_1(x))": "x = self.attn(self.ln_1(x))"},
     "x = self.attn(self.ln_1(x))"),
    (RESIDUAL, True, "translator", {"x = self.norm1(x + self.dropout(self.self_attn(x, x, x, mask)))":
                                     "x = self.norm1(self.dropout(self.self_attn(x, x, x, mask)))"},
     "x = self.norm1(self.dropout(self.self_attn(x, x, x, mask)))"),
    (RESIDUAL, True, "llama", {"return h + self.feed_forward(self.ffn_norm(h))":
                               "return self.feed_forward(self.ffn_norm(h))"},
     "return self.feed_forward(self.ffn_norm(h))"),
    (TWICE, True, "gpt", {"x = x + self.attn(self.ln_1(x))": "x = x + x + self.attn(self.ln_1(x))"},
     "x = x + x + self.attn(self.ln_1(x))"),
    (TWICE, True, "gpt", {"x = x + self.mlp(self.ln_2(x))": "x = self.mlp(self.ln_2(x)) + x + x"},
     "x = self.mlp(self.ln_2(x)) + x + x"),
    (TWICE, True, "translator", {"x = self.norm1(x + self.dropout(self.self_attn(x, x, x, mask)))":
                                 "x = self.norm1(x + x + self.dropout(self.self_attn(x, x, x, mask)))"},
     "x = self.norm1(x + x + self.dropout(self.self_attn(x, x, x, mask)))"),
    (INPUT, True, "gpt", {"x = x + self.mlp(self.ln_2(x))": "x = self.ln_2(x); x = x + self.mlp(x)"},
     "x = self.ln_2(x); x = x + self.mlp(x)"),
    (INPUT, True, "llama", {"return h + self.feed_forward(self.ffn_norm(h))":
                            "return x + self.feed_forward(self.ffn_norm(h))"},
     "return x + self.feed_forward(self.ffn_norm(h))"),
]  # fmt: skip


@pytest.mark.parametrize(
    "mutant", MUTANTS, ids=lambda mutant: f"{mutant[2]}-{mutant[0]}-{[*mutant[3].values()][-1]:.40}"
)
def test_a_mistake_of_composition_is_told_with_its_line(mutant, tmp_path):
    claim, certain, file, lines, where = mutant
    source = (SUBJECTS / f"{file}.py").read_text()
    for line, instead in lines.items():
        assert line in source
        source = source.replace(line, instead, 1)
    (tmp_path / f"{file}.py").write_text(source)
    found = composition(run(load(tmp_path / f"{file}.py")))
    assert {(finding.claim, finding.certain) for finding in found} == {(claim, certain)}
    assert {finding.place.text for finding in found} == {where}


def test_one_block_that_is_wired_unlike_its_siblings(tmp_path):
    line = "x = x + self.mlp(self.ln_2(x))"
    module = mutated(
        tmp_path, "gpt", None, line, "x = x + self.mlp(self.ln_2(x)) if self.keep[0] else self.mlp(self.ln_2(x))"
    )

    def subject():
        model = module.GPT(layers=5)
        for i, block in enumerate(model.h):
            block.keep = [i != 2]  # no plain attribute: nothing that a design would say
        return model, (torch.randint(0, 23, (2, 7)),)

    module.subject = subject
    found = stream_findings([run(module)])
    alike = [finding for finding in found if finding.claim == ALIKE]
    assert [(finding.certain, finding.paths) for finding in alike] == [(True, ("h.2",))]


def test_a_finding_names_a_claim_of_the_table():
    with pytest.raises(ValueError, match="no claim 'nothing'"):
        Finding("nothing", "", None, 0, 0, "")
    assert all(claim == claim.lower() and sentence.endswith(".") for claim, sentence in FINDINGS.items())


def test_every_claim_of_the_table_is_made_by_the_code_and_by_no_test_alone():
    code = "".join(path.read_text() for path in WHOLE.glob("*.py") if path.name != "findings.py")
    assert [claim for claim in FINDINGS if f'"{claim}"' not in code] == []


def test_a_list_with_a_gap_is_no_stack():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.extra = torch.nn.ModuleList([None, torch.nn.Sequential(torch.nn.Linear(4, 4))])

        def forward(self, x):
            return self.extra[1](x)

    model, x = Net(), torch.ones(2, 4)
    assert stacks(record(model, lambda: model(x))) == []


class Normed(nn.Module):
    """A layer whose norms stand on the branches, or on the sums, or one on each."""

    def __init__(self, attention: str, network: str) -> None:
        super().__init__()
        self.places = attention, network
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def added(self, at, x, out):
        if self.places[at] == "branch":
            return x + self.norms[at](out)
        return self.norms[at](x + out) if self.places[at] == "sum" else x + out

    def forward(self, x):
        before = [
            norm if place == "before" else nn.Identity() for norm, place in zip(self.norms, self.places, strict=True)
        ]
        y = before[0](x)
        x = self.added(0, x, self.attention(y, y, y, need_weights=False)[0])
        return self.added(1, x, self.network(before[1](x)))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("attention", "network", "says"),
    [
        ("sum", "sum", []),
        ("branch", "branch", []),
        ("before", "before", []),
        ("before", "sum", []),
        ("branch", "sum", [PLACED]),
        ("sum", "branch", [PLACED]),
    ],
)
def test_the_norms_of_a_block_stand_in_one_place(attention, network, says, training):
    torch.manual_seed(0)
    block = nn.Sequential(*(Normed(attention, network) for _ in range(2))).train(training)
    recorded = record(block, lambda: block(torch.randn(2, 5, 16)))
    found = [one for one in composition(recorded) if one.certain]
    assert sorted({one.claim for one in found}) == says
