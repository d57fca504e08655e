"""Mutants of whole models: one line of a small, correct PyTorch model is another.

The models are the files of `conformance/mutants/specimens`. What a mutant is as an implementation,
`conformance.mutated` says; nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from conformance.mutants.base import MUTANTS

FOLDER = Path(__file__).with_name("specimens")


@dataclass(frozen=True)
class Specimen:
    """A correct model. file: its name in FOLDER; name: of its class; kind: the whole-model role that it plays. beside:
    whether functions that are judged stand beside it."""

    file: str
    name: str
    kind: str
    beside: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        whole = () if self.kind == "helpers" else ("module", "model", self.kind)
        return (*whole, *(("helpers",) if self.beside else ()))

    @property
    def source(self) -> str:
        return (FOLDER / self.file).read_text(encoding="utf-8")


GPT = Specimen("gpt.py", "GPT", "language_model")
LLAMA = Specimen("llama.py", "Llama", "language_model")
ALIBI = Specimen("alibi.py", "ALiBi", "language_model")
PREFIX = Specimen("prefix.py", "PrefixLM", "language_model")
ADAPTED = Specimen("adapted.py", "AdaptedLM", "language_model")
RECURRENT = Specimen("recurrent.py", "MemoryLM", "language_model")
MIXTURE = Specimen("mixture.py", "MixtureLM", "language_model")
BERT = Specimen("bert.py", "BertForMaskedLM", "masked_language_model")
RELATIVE = Specimen("relative.py", "RelativeForMaskedLM", "masked_language_model")
TRANSLATOR = Specimen("translator.py", "Transformer", "sequence_to_sequence")
CLASSIFIER = Specimen("classifier.py", "TextClassifier", "classifier")
RECOMMENDER = Specimen("recommender.py", "NextItem", "language_model")
VIT = Specimen("vit.py", "ViT", "classifier")
RESTORER = Specimen("restorer.py", "Restorer", "classifier")
MASKED_IMAGES = Specimen("masked_images.py", "MaskedAutoencoder", "classifier")
SPEECH = Specimen("speech.py", "SpeechCTC", "encoder_model")
CONFORMER = Specimen("conformer.py", "Conformer", "encoder_model")
EMBEDDER = Specimen("embedder.py", "SentenceEncoder", "classifier")
TOWERS = Specimen("towers.py", "Towers", "classifier")
DENOISER = Specimen("denoiser.py", "Denoiser", "classifier")
DECIDER = Specimen("decider.py", "DecisionTransformer", "encoder_model")
FORECASTER = Specimen("forecaster.py", "Forecaster", "classifier")
IMPUTER = Specimen("imputer.py", "Imputer", "classifier")
SPANS = Specimen("spans.py", "SpanReader", "encoder_model")
TAGGER = Specimen("tagger.py", "Tagger", "encoder_model")
FOLLOWED = Specimen("followed.py", "FollowedForecaster", "classifier")
QUANTILES = Specimen("quantiles.py", "QuantileForecaster", "classifier")
TRAINED = Specimen("trained.py", "TrainedGPT", "language_model", beside=True)
CAREFUL = Specimen("careful.py", "CarefulLM", "language_model")
HELPERS = Specimen("helpers.py", "helpers", "helpers", beside=True)
"""Functions that stand beside models; its name is what they are called together."""
SCORES = Specimen("scores.py", "scores", "helpers", beside=True)
"""Those of them that measure."""
SPECIMENS = (
    *(GPT, LLAMA, ALIBI, PREFIX, ADAPTED, RECURRENT, MIXTURE, RECOMMENDER, BERT, RELATIVE, TRANSLATOR),
    *(CLASSIFIER, VIT, RESTORER, MASKED_IMAGES, SPEECH, CONFORMER, EMBEDDER, TOWERS, DECIDER, FORECASTER, TRAINED),
    *(DENOISER, CAREFUL, QUANTILES, FOLLOWED, IMPUTER, SPANS, TAGGER),
)


@dataclass(frozen=True)
class SourceMutant:
    """A specimen in whose source `new` stands for `old`. breaks: the claims that it violates; defect: in a sentence."""

    name: str
    specimen: Specimen
    old: str
    new: str
    breaks: tuple[str, ...]
    defect: str
    known_as: str = ""
    topic: ClassVar[str] = "specimens"
    needs: ClassVar[str] = "torch"

    @property
    def roles(self) -> tuple[str, ...]:
        return self.specimen.roles

    def source(self) -> str:
        """The changed file. Raises ValueError unless `old` stands in it once."""
        source = self.specimen.source
        if source.count(self.old) != 1:
            raise ValueError(
                f"mutant {self.name}: {self.old!r} stands {source.count(self.old)} times in {self.specimen.file}"
            )
        return source.replace(self.old, self.new)


def changed(name: str, specimen: Specimen, old: str, new: str, *, breaks: tuple[str, ...], defect: str) -> None:
    """Register a mutant of a whole model. Raises ValueError when its name is taken."""
    if name in MUTANTS:
        raise ValueError(f"two mutants are called {name}")
    MUTANTS[name] = SourceMutant(name, specimen, old, new, breaks, defect)
