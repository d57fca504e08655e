"""Correct models of unusual design break no claim about whole models, and the core of their kind is tested.

The models stand in the files beside this one. The docstring of each says which precondition of the claims needs it.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.adapters import resolve
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.whole import implementation
from conformance.adapters.whole.model import moved
from conformance.catalogue import load
from conformance.check import CHECKS
from conformance.protocol import WHOLE_MODELS
from conformance.runner import run_check
from conformance.verdict import Verdict

CLAIMS = [claim for claim, check in CHECKS.items() if {*WHOLE_MODELS}.issuperset(check.roles)]
BROKEN = (Verdict.FAIL, Verdict.ERROR, Verdict.VACUOUS)

SPECIMENS = {
    ("blocks.py", "language_model"): (
        "ParallelBlocks PaLM SandwichNorms ReZero LayerScale ZeroStart DeepNorm GTrXL HyperConnections UShapedSkips "
        "SharedLayers UniversalTransformer LayerDrop DropPath DropPathByBernoulli Checkpointed WeightNormed LoRA "
        "ProjectedEmbeddings "
        "ScaledEmbeddings Switch ExpertChoice BatchNormed MonteCarlo NoisyRouting NormedOnce Capped"
    ),
    ("scores.py", "language_model"): (
        "NoPE ALiBi RelativeBiases PartialRotary DynamicNTK EarlyNTK LogNScaling CosineScores NormedQueriesAndKeys "
        "TalkingHeads Differential SoftCapped Sinks MultiQuery MLA PerformerLM SlidingWindow Chunked "
        "XPos TemperedRotation Yarn Interpolated LearnedRotation Retention TurnedValues"
    ),
    ("scores.py", "classifier"): "AxialRotation",
    ("language.py", "language_model"): (
        "WithMemories PrefixLM PackedLM LastPosition SeveralTokensLM ZLossLM SmoothedLM CountedItemsLM "
        "LogProbabilitiesLM ByteLM PaddedTableLM OwnCacheLM SequenceFirstLM LeftPaddedLM FloatNormLM "
        "FlatWithTargets"
    ),
    ("networks.py", "language_model"): (
        "TiedStack BiasedRouting OneExpertEach BilinearNetworks WideNetworks LearnedFunctions ScaledInEvaluation "
        "CappedLogits"
    ),
    ("losses.py", "language_model"): (
        "SeveralAhead LoggedPerplexity PadIsEnd AnswersOnly ShiftedByTheLoader LogMixture SummedOverWords TwoPasses"
    ),
    ("encoders.py", "masked_language_model"): "BertForPreTraining OneTokenType LongformerMLM LinformerMLM GMLP",
    ("encoders.py", "encoder_model"): "BertWithPooler TokenClassifier StreamingEncoder MoCoCopy DiT SymmetricEncoder "
    "BlankIsLast",
    ("encoders.py", "classifier"): (
        "SentenceEmbedder Retriever MeanByLengths FastPath FrameClassifier Forecaster PatchClassifier GridClassifier"
    ),
    ("several.py", "encoder_model"): "DecisionTransformer AssembledTagger LiteralPadding",
    ("several.py", "classifier"): (
        "BatchForecaster Towers PairOfTowers SwitchedTowers EarlyTowers NamedTowers ComparedTowers RewardModel"
    ),
    ("beside.py", "classifier"): "LabelDropout SharesOfTheLength Columns OneKey LastNeedsLess FlatResize",
    ("beside.py", "language_model"): "Captioner",
    ("beside.py", "encoder_model"): "WordsAndShapes ShawFrames FilledStacks NormedFrames SharedFrames ValidFrames",
    ("streams.py", "language_model"): "ReversibleLM ReversibleHalvesLM",
    ("streams.py", "encoder_model"): "PerceiverTagger",
    ("streams.py", "classifier"): "ConvolvedClassifier",
    ("sequences.py", "sequence_to_sequence"): (
        "SharedVocabulary NonAutoregressive LayerWise WindowedTarget ShiftsRight TorchTransformer RowByRow RowsAlive "
        "TwoWordsABeam"
    ),
}
"""File and kind -> the names of the specimens."""

APART, CAUSAL, PREFIX = (
    "model-rows-of-a-batch-are-apart",
    "language-model-is-causal",
    "language-model-prefix-has-the-same-logits",
)
UNTESTED = {
    "Switch": {APART, CAUSAL, PREFIX},  # tokens of a batch compete
    "ExpertChoice": {APART, CAUSAL, PREFIX},
    "MonteCarlo": {APART, CAUSAL, PREFIX},  # answers are random
    "NoisyRouting": {APART, CAUSAL, PREFIX},
    "PrefixLM": {PREFIX},
    "NonAutoregressive": {"sequence-model-target-prefix-has-the-same-logits"},
}
"""The claims of the core of its kind that a specimen's design leaves without an answer; of the others none."""

NAMES = [(file, name, kind) for (file, kind), names in SPECIMENS.items() for name in names.split()]
FIRST = {kind: names.split()[0] for (_, kind), names in reversed(SPECIMENS.items())}.values()
"""One of each kind; the others take three minutes together."""
SOME = [
    row if row[1] in FIRST else pytest.param(*row, marks=pytest.mark.slow if number % 2 else pytest.mark.deep)
    for number, row in enumerate(NAMES)
]


@pytest.fixture(autouse=True)
def _whole_models_only(monkeypatch):
    """Components have tests of their own."""

    def no_components(found, role):
        raise Unresolved("components are left out")

    monkeypatch.setattr(implementation, "TorchModuleImplementation", no_components)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 5))], ids=lambda seed: f"seed{seed}"
)
@pytest.mark.parametrize(("file", "name", "kind"), SOME, ids=lambda value: value.removesuffix(".py"))
def test_a_correct_model_breaks_nothing(file, name, kind, seed):
    subject = resolve(f"{Path(__file__).with_name(file)}:{name}")
    assert subject.kind == kind
    if seed:
        whole = subject.whole
        module = moved(whole.made.fresh(seed), seed).to(whole.torch_dtype).eval()
        subject.whole = replace(whole, module=module, known={})
    claims = [claim for claim in CLAIMS if {"module", "model", kind} & {*CHECKS[claim].roles}]
    results = {claim: run_check(CHECKS[claim], subject, "quick") for claim in claims}
    broken = {c: (r.verdict.name, r.message or r.diagnosis) for c, r in results.items() if r.verdict in BROKEN}
    assert broken == {}
    core = {claim.slug for claim in load().claims.values() if kind in claim.core_of and claim.slug in results}
    assert core
    untested = {claim for claim in core if results[claim].verdict not in (Verdict.PASS, Verdict.NOTE)}
    assert untested <= UNTESTED.get(name, set())


def test_padding_that_only_a_literal_tells_is_tested():
    subject = resolve(f"{Path(__file__).with_name('several.py')}:LiteralPadding")
    assert subject.whole.pad_id == 0
    assert run_check(CHECKS["encoder-padding-changes-nothing"], subject, "quick").verdict is Verdict.PASS


@pytest.mark.parametrize("file", sorted({file for file, _, _ in NAMES}))
def test_every_specimen_says_which_rule_needs_it(file):
    tree = ast.parse(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    said = {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.ClassDef)}
    assert [name for where, name, _ in NAMES if where == file and ("." not in said[name] or "\n" in said[name])] == []


def test_what_begins_by_itself_is_a_writer():
    subject = resolve(f"{Path(__file__).with_name('beside.py')}:Captioner")
    assert [writer.name for writer in subject.whole.writers()] == ["caption"]
    for claim in ("generate-takes-the-best-token", "generate-stops-at-the-end-token"):
        assert run_check(CHECKS[claim], subject, "quick").verdict is Verdict.PASS
