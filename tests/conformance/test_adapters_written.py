"""Adapters written from what was inferred: each runs, infers nothing, and gives the verdicts of the inference."""

from __future__ import annotations

import inspect

import pytest
from slow import slow_but

torch = pytest.importorskip("torch")

import torch_subjects.families  # noqa: E402, F401
from torch_subjects import specification  # noqa: E402
from torch_subjects.models import Translator  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import SpecificationError, resolve  # noqa: E402
from conformance.adapters.inference import probes  # noqa: E402
from conformance.adapters.inference.written import source  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

pytest_plugins = ["pytester"]

PER_HEAD = specification("FusedPerHead")
TRANSLATOR = f"{inspect.getfile(Translator)}:Translator"


@pytest.mark.parametrize(
    "name",
    [
        *("PostNormInside", "FusedCausal", "HalfSplitPositions"),
        *("RotaryTables", "CachedHeads"),
        *slow_but(
            (
                *("SequenceFirst", "RMSNormMinusOne", "RotaryEmbedding", "HiddenMask", "EinsumKernels"),
                *("PreNormDecoderBlock", "ScaledByModelWidth", "AddedMask"),
            ),
            lambda name: False,
        ),
    ],
)
def test_a_written_adapter_gives_the_verdicts_of_the_inference(tmp_path, monkeypatch, name):
    same_verdicts(specification(name), tmp_path, monkeypatch, ())


@pytest.mark.slow
def test_a_written_adapter_of_a_whole_model(tmp_path, monkeypatch):
    claims = ("encoder-decoder-formula", "layer-norm-formula", "decoder-layer-hides-the-future")
    same_verdicts(TRANSLATOR, tmp_path, monkeypatch, claims)


@pytest.mark.slow
def test_a_written_adapter_of_a_function(tmp_path, monkeypatch):
    claims = ("multi-head-formula", "sinusoid-formula", "heads-must-divide-the-width")
    same_verdicts(f"{inspect.getfile(Translator)}:make_embedded", tmp_path, monkeypatch, claims)


def same_verdicts(impl, tmp_path, monkeypatch, claims):
    """The written adapter gives the verdicts of the inferred one on the claims, or on the first of its role."""
    inferred = resolve(impl)
    path = tmp_path / "adapter.py"
    path.write_text(source(inferred, impl, path))
    monkeypatch.setattr(probes, "difference", None)  # whoever infers stumbles
    written = resolve(f"{path}:Adapter")
    claims = claims or [claim for claim, check in CHECKS.items() if {*inferred.parts.roles} & {*check.roles}][:4]
    verdicts = {claim: run_check(CHECKS[claim], inferred, "quick").verdict for claim in claims}
    assert set(verdicts.values()) != {Verdict.NOT_PROVIDED}
    assert {claim: run_check(CHECKS[claim], written, "quick").verdict for claim in claims} == verdicts


@pytest.mark.slow
def test_the_option_writes_the_file(pytester):
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--pyargs", "conformance", "--impl", PER_HEAD),
        *("--claims", "multi-head-formula", "--claims-adapter-out", "adapter.py"),
    )
    assert result.ret == pytest.ExitCode.OK
    text = (pytester.path / "adapter.py").read_text()
    assert "class Adapter(WrittenAdapter):" in text
    assert "fused head by head" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("impl", "path", "sentence"),
    [
        ("reference", "adapter.py", "reference is no nn.Module, and needs no adapter"),
        (PER_HEAD, "/no/such/adapter.py", "cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(pytester, impl, path, sentence):
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--pyargs", "conformance", "--impl", impl, "--claims", "multi-head-formula"),
        *("--claims-adapter-out", path),
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in "\n".join([*result.errlines, *result.outlines])


def test_only_inferred_classes_have_one(tmp_path):
    with pytest.raises(SpecificationError, match=r"for an nn\.Module that was inferred"):
        source(resolve("reference"), "reference", tmp_path / "adapter.py")
