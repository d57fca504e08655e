"""Mutants of an encoder of sentences and of two towers: lists out of order, pairs that are no pairs, wrong axes."""

from __future__ import annotations

from conformance.mutants.source import EMBEDDER, TOWERS, changed

LISTS = "lists-of-texts-are-answered-one-by-one"
PARTNER = "contrasts-label-the-own-partner"
TEMPERATURE = "contrasts-are-divided-by-the-temperature"
BOTH = "contrasts-ask-in-both-directions"
ALONE = "scores-of-pairs-are-the-same-in-a-larger-batch"
SIDES = "losses-of-pairs-teach-both-sides"
LEARNED = "learned-scales-of-pairs-begin-where-they-learn"
SCALED = "contrasts-scale-all-false-partners"
LENGTHS = "attention-lengths-are-of-one-vector"

changed(
    "ListsStaySorted",
    EMBEDDER,
    "made[chosen] = self(batch)",
    "made[start : start + len(chosen)] = self(batch)",
    breaks=(LISTS,),
    defect="A list of texts is answered in the order of their lengths.",
)
changed(
    "ListsAttendToPadding",
    EMBEDDER,
    "made[chosen] = self(batch)",
    "made[chosen] = self(batch, torch.ones_like(batch))",
    breaks=(LISTS,),
    defect="The padding of a list is told to be words.",
)
changed(
    "AllAreTaughtTheFirst",
    EMBEDDER,
    "own = torch.arange(len(scores))",
    "own = torch.zeros(len(scores), dtype=torch.long)",
    breaks=(PARTNER,),
    defect="Every anchor is taught the first positive.",
)
changed(
    "TimesTheTemperature",
    EMBEDDER,
    ".t() / self.temperature",
    ".t() * self.temperature",
    breaks=(TEMPERATURE,),
    defect="Similarities are multiplied by the temperature.",
)
changed(
    "LengthsOverTheHeads",
    EMBEDDER,
    "q, k = F.normalize(q, dim=-1)",
    "q, k = F.normalize(q)",
    breaks=(LENGTHS,),
    defect="Queries are normalised over the heads, the default axis, and not over their features.",
)
changed(
    "TextsAreAskedAsPictures",
    TOWERS,
    "F.cross_entropy(logits.t(), own)",
    "F.cross_entropy(logits, own)",
    breaks=(BOTH,),
    defect="The texts' direction is taken from the logits as they are: the pictures' loss counts twice.",
)
changed(
    "TextsNormalisedOverTheBatch",
    TOWERS,
    "z.norm(dim=1, keepdim=True)",
    "z.norm(dim=0, keepdim=True)",
    breaks=(ALONE,),
    defect="The vectors of texts are normalised over the batch.",
)
changed(
    "DividedByTheLogitScale",
    TOWERS,
    "return self.logit_scale.exp() * self.encode_image(images) @ self.encode_text(ids).t()",
    "return self.encode_image(images) @ self.encode_text(ids).t() / self.logit_scale.exp()",
    breaks=(TEMPERATURE,),
    defect="Similarities are divided by the logit scale.",
)
changed(
    "TheLogarithmOfTheScale",
    TOWERS,
    "return self.logit_scale.exp() * self.encode_image",
    "return self.logit_scale * self.encode_image",
    breaks=(TEMPERATURE,),
    defect="Similarities are multiplied by the logarithm of the scale.",
)
changed(
    "TextsAreNotTaught",
    TOWERS,
    "contrastive_loss(self(images, ids))",
    "contrastive_loss(self.logit_scale.exp() * self.encode_image(images) @ self.encode_text(ids).detach().t())",
    breaks=(SIDES,),
    defect="The loss detaches the vectors of texts: their tower never learns.",
)
changed(
    "NegativesAreNotScaled",
    EMBEDDER,
    "torch.cat([scores, worse / self.temperature], 1)",
    "torch.cat([scores, worse], 1)",
    breaks=(SCALED,),
    defect="The similarities of further negatives are not divided by the temperature.",
)
changed(
    "TextsOfPairsSeeTheirPadding",
    TOWERS,
    "hidden = ids == PAD_ID",
    "hidden = ids < PAD_ID",
    breaks=("texts-of-pairs-end-where-said",),
    defect="A text reads the padding behind its end.",
)
changed(
    "TheScaleOfATemperature",
    TOWERS,
    "math.log(1 / 0.07)",
    "math.log(0.07)",
    breaks=(LEARNED,),
    defect="The logarithm of a temperature is taken for that of a scale: cosines are multiplied by 0.07.",
)
changed(
    "TheScaleClampedAtALogarithm",
    TOWERS,
    "return self.logit_scale.exp() * self",
    "return self.logit_scale.exp().clamp(max=math.log(100)) * self",
    breaks=(LEARNED,),
    defect="The scale is clamped at the logarithm of its bound, and never learns.",
)
changed(
    "PairsTakeTheirSoftmaxTwice",
    TOWERS,
    "F.cross_entropy(logits, own)",
    "F.cross_entropy(logits.softmax(-1), own)",
    breaks=("losses-take-their-softmax-once",),
    defect="The cross-entropy of pictures is given probabilities.",
)
