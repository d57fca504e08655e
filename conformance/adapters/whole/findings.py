"""What a recorded run can show to be wrong: the shape of a finding, and the claims that findings break."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from conformance.adapters.whole.record import Place


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or odd.

    claim: a slug of `FINDINGS`. sentence: what is wrong, in words. place: the line of the user's program. expected,
    got: numbers or words. mend: what to write instead. certain: any author would call it a mistake; else it is a note.
    paths: the modules in which it was seen.
    """

    claim: str
    sentence: str
    place: Place | None
    expected: Any
    got: Any
    mend: str
    certain: bool = True
    paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.claim not in FINDINGS:
            raise ValueError(f"there is no claim {self.claim!r} in the table of findings")


def once(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each claim and line: the layers of a model share their code, and so their mistakes."""
    found: dict[tuple[str, Place | None, bool], Finding] = {}
    for finding in findings:
        key = (finding.claim, finding.place, finding.certain)
        before = found.get(key)
        paths = dict.fromkeys([*(before.paths if before else ()), *finding.paths])
        found[key] = replace(before or finding, paths=tuple(paths))
    return list(found.values())


def numbers(values: Tensor) -> str:
    """The range of some numbers in words."""
    values = values[~values.isnan()]
    if not values.numel():
        return "no numbers"
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if math.isclose(low, high, rel_tol=1e-4) else f"{low:.4g} to {high:.4g}"


_VASWANI = "Attention Is All You Need, 2017"

FINDINGS: dict[str, str] = {
    # attention
    "attention-softmax-runs-over-the-keys": (
        f"The weights of one query sum to one: the softmax runs along the keys ({_VASWANI}, section 3.2.1)."
    ),
    "attention-scale-is-one-over-sqrt-d-head": (
        f"Scores are divided by the square root of the length of a query vector ({_VASWANI}, section 3.2.1)."
    ),
    "attention-sums-values-over-the-keys": (
        f"The output of a query is the sum of the values, weighted over the keys ({_VASWANI}, section 3.2.1)."
    ),
    "attention-key-and-value-are-of-one-token": (
        f"A key and the value that its weight multiplies come from the same token ({_VASWANI}, section 3.2)."
    ),
    "attention-projects-query-key-and-value-apart": (
        f"Queries, keys and values have a projection each ({_VASWANI}, section 3.2.2)."
    ),
    "attention-heads-have-their-own-projections": (
        f"Every head has its own projections of queries, keys and values ({_VASWANI}, section 3.2.2)."
    ),
    "attention-heads-keep-tokens-apart": (
        f"A vector is computed from one token, and a head has one vector of each token ({_VASWANI}, 3.2.2)."
    ),
    "attention-stays-in-its-batch-row": (
        "A query meets the keys and the mask of its own row of the batch (torch.nn.MultiheadAttention, documentation)."
    ),
    "attention-merges-heads-of-one-token": (
        f"The output projection reads the concatenated heads of one token ({_VASWANI}, section 3.2.2)."
    ),
    "attention-masks-before-the-softmax": (
        f"A mask hides keys in the input of the softmax, so the weights still sum to one ({_VASWANI}, section 3.2.3)."
    ),
    "attention-mask-hides-completely": (
        f"A hidden key has weight zero: its score is minus infinity, or as good as that ({_VASWANI}, 3.2.3)."
    ),
    "attention-uses-every-mask": (
        "A mask that is applied to the scores reaches the softmax, also where there is a second mask "
        "(torch.nn.functional.multi_head_attention_forward merges both)."
    ),
    "attention-causal-mask-keeps-the-diagonal": (
        f"Position i attends to all positions up to and including i ({_VASWANI}, section 3.2.3)."
    ),
    "attention-groups-are-interleaved": (
        "Of H query heads and G key heads, query head i uses key head i // (H / G) (Ainslie et al. 2023, GQA, "
        "section 2.2; torch.nn.functional.scaled_dot_product_attention, enable_gqa)."
    ),
    "attention-rotates-queries-and-keys": (
        "Queries and keys are both rotated by their positions (Su et al. 2021, RoFormer, equations 14 and 16)."
    ),
    "attention-rotates-by-position": (
        "The angle of a rotation is a multiple of the position (Su et al. 2021, RoFormer, equations 14 and 16)."
    ),
    "attention-rotation-keeps-lengths": (
        "A rotation keeps the length of queries and keys (Su et al. 2021, RoFormer, equations 14 and 15)."
    ),
    "attention-rotated-scores-depend-on-distance": (
        "The score of a rotated query and key depends on their distance only (Su et al. 2021, RoFormer, equation 16)."
    ),
    "attention-rotation-angles-are-those-of-a-base": (
        "Pair i of d / 2 turns by base ** (-2 i / d) a position, the first by 1 (Su et al. 2021, RoFormer, 3.2.2)."
    ),
    "attention-leaves-values-unrotated": (
        "Positions turn queries and keys, and not values (Su et al. 2021, RoFormer, equations 14 to 16)."
    ),
    "attention-lengths-are-of-one-vector": (
        "Queries and keys that are normalised are divided each by its own length (Henry et al. 2020, Query-Key "
        "Normalization for Transformers, section 3)."
    ),
    "attention-relative-bias-depends-on-distance": (
        "A relative bias is a number for the distance of key and query (Raffel et al. 2020, Exploring the Limits of "
        "Transfer Learning, section 2.1)."
    ),
    "attention-relative-bias-tells-before-from-after": (
        "Where keys on both sides are seen, relative biases tell those before from those behind (Shaw et al. 2018, "
        "Self-Attention with Relative Position Representations, section 3.2)."
    ),
    "attention-relative-bias-reaches-every-layer": (
        "Layers that share a table of relative biases add it to their scores, each of them (Raffel et al. 2020, "
        "Exploring the Limits of Transfer Learning, section 2.1)."
    ),
    "attention-linear-bias-falls-with-distance": (
        "A linear bias lowers the scores of keys that are far away (Press et al. 2022, Train Short, Test Long, 3)."
    ),
    "dropout-only-in-training": "Dropout changes nothing in evaluation (torch.nn.Dropout, documentation).",
    # norms and networks
    "norm-is-its-formula": (
        "A norm computes LayerNorm (Ba et al. 2016, equation 3; torch.nn.LayerNorm) or RMSNorm (Zhang and Sennrich "
        "2019, equation 4; torch.nn.RMSNorm) over the features of one token."
    ),
    "feed-forward-function-stands-between-its-maps": (
        f"A feed-forward network has a function between its two linear maps ({_VASWANI}, section 3.3)."
    ),
    "feed-forward-gate-is-used": (
        "A gated network multiplies one half of its first map by a function of the other (Shazeer 2020, GLU Variants)."
    ),
    # positions
    "positions-differ-from-place-to-place": (
        f"Position vectors inject the order of a sequence: each place has its own ({_VASWANI}, section 3.5)."
    ),
    "positions-are-told-apart": (
        f"No two places of a sequence have the same vector, or their words change places unseen "
        f"({_VASWANI}, section 3.5)."
    ),
    "positions-have-features-of-their-own": (
        f"Each feature of a sinusoidal encoding is a wave of its own: a sine and a cosine of each frequency "
        f"({_VASWANI}, section 3.5)."
    ),
    "positions-that-no-formula-makes-are-learned": (
        f"Positions are sines of a formula, or learned ({_VASWANI}, section 3.5)."
    ),
    "positions-are-added-to-scaled-words": (
        f"The weights of the embedding are multiplied by sqrt(d_model), and positions added to the product "
        f"({_VASWANI}, sections 3.4 and 3.5)."
    ),
    # composition
    "modules-start-by-a-deviation-and-not-a-mean": (
        "The second argument of normal_ is the mean (torch.nn.init.normal_, documentation)."
    ),
    "modules-that-are-looked-for-by-name-exist": (
        "Parameters that are looked for by name, to be scaled at the start, have that name (Radford et al. 2019, "
        "Language Models are Unsupervised Multitask Learners, 2.3: weights of residual layers are scaled)."
    ),
    "modules-that-are-made-run": (
        "A module that is made in __init__ is part of the model: it runs, or its parameters are read "
        "(torch.nn.parallel.DistributedDataParallel, documentation of find_unused_parameters)."
    ),
    "results-that-are-computed-are-used": (
        "What a module with parameters computes reaches a result "
        "(torch.nn.parallel.DistributedDataParallel, documentation of find_unused_parameters)."
    ),
    "results-of-all-blocks-are-added-up": (
        "The losses that blocks hand out, such as those for the balance of experts, are added up over the blocks "
        "(Fedus et al. 2022, Switch Transformers, section 2.2: for each Switch layer)."
    ),
    "results-stay-the-same-in-every-process": (
        "Hash values of texts are not predictable between processes (Python documentation, object.__hash__)."
    ),
    "results-that-are-nearest-are-chosen-by-distance": (
        "A number that is taken off all values alike does not change which of them is the least."
    ),
    "results-stay-beside-their-tokens": (
        "Each label stands beside its token, also where a text that is too long was cut (Transformers documentation, "
        "truncation_side)."
    ),
    "results-of-ranks-count-the-first-k": (
        "Recall at k is of the k results that come first (Manning et al. 2008, Information Retrieval, section 8.4)."
    ),
    "attention-moves-its-heads-back": (
        f"The results of the heads are concatenated for each position ({_VASWANI}, section 3.2.2)."
    ),
    "results-of-the-last-group-are-kept": (
        "What is put together in groups is all handed on, the last group too (Python documentation, itertools.batched)."
    ),
    "results-of-training-use-all-gradients": (
        "Gradients add up until they are cleared, which is done once a step (PyTorch documentation, "
        "Optimizer.zero_grad)."
    ),
    "results-of-training-start-from-no-gradients": (
        "Gradients add up whenever backward() is called (PyTorch documentation, Zeroing out gradients in PyTorch)."
    ),
    "results-of-training-are-clipped-before-a-step": (
        "Gradients are clipped for the step that follows (PyTorch documentation, clip_grad_norm_)."
    ),
    "results-of-training-are-copied-when-kept": (
        "state_dict() returns a reference and not a copy (PyTorch documentation, Saving and loading models)."
    ),
    "results-of-training-that-are-best-are-kept": (
        "Early stopping keeps the parameters of the least validation error (Goodfellow et al. 2016, "
        "Deep Learning, algorithm 7.1)."
    ),
    "results-of-training-follow-their-schedule": (
        "A schedule by the batch makes epochs times batches steps (PyTorch documentation, OneCycleLR)."
    ),
    "results-of-long-texts-have-their-end": (
        "Each sentence ends with a special symbol, which the model learns to write (Sutskever et al. 2014, section 2)."
    ),
    "results-of-windows-end-before-their-target": (
        "A forecast is made of what was known before it (Hyndman and Athanasopoulos 2021, Forecasting, section 5.8)."
    ),
    "results-of-levels-weigh-errors-by-their-sign": (
        "The weight is the level where the truth lies above the answer (Koenker and Bassett 1978, Regression "
        "quantiles, section 3)."
    ),
    "results-of-shares-meet-one-softmax": (
        "A softmax is taken of logits, which are not normalised (PyTorch documentation, cross_entropy)."
    ),
    "results-of-first-numbers-are-kept": (
        "The weights of residual layers start smaller by the root of their number (Radford et al. 2019, GPT-2, section "
        "2.3)."
    ),
    "results-of-perplexities-have-the-base-of-their-loss": (
        "A perplexity is a power of the base in which its cross-entropy is counted (Jurafsky and Martin 2024, section "
        "3.7)."
    ),
    "results-of-margins-are-of-one-answer": (
        "Policy and reference are compared for the same answer (Rafailov et al. 2023, DPO, equation 7)."
    ),
    "results-of-beams-add-their-scores": (
        "A beam is worth the product of the probabilities of all its words (Graves 2012, section 2.5)."
    ),
    "results-of-beams-begin-with-one": (
        "Copies of one beam find the same words; so all but the first begin with a score of -1e9 (Hugging Face, "
        "Transformers, GenerationMixin._beam_search)."
    ),
    "results-of-next-words-have-labels-moved-on": (
        "The scores behind a word are compared with the word that comes next (Hugging Face, Transformers, "
        "ForCausalLMLoss)."
    ),
    "results-of-fitted-statistics-are-saved": (
        "A buffer with persistent=False is no part of the state that is saved (PyTorch, Module.register_buffer)."
    ),
    "results-of-columns-have-rows-of-their-own": (
        "Each column has a table of its own, be it a part of one (Gorishniy et al. 2021, Revisiting Deep Learning "
        "Models for Tabular Data, section 3.3)."
    ),
    "results-of-long-answers-divide-by-their-length": (
        "A sum of logarithms is divided by the length penalty (Wu et al. 2016, section 7, equation 14)."
    ),
    "results-of-ends-are-taught": (
        "A text ends with a sign that is predicted as other words are (Sutskever et al. 2014, section 2)."
    ),
    "results-of-terms-have-one-scale": (
        "Both terms of a score are divided by the root of the width (Shaw et al. 2018, equation 4)."
    ),
    "results-of-hidden-scores-are-minus-infinity": (
        "A hidden score is minus infinity before the softmax (Vaswani et al. 2017, section 3.2.3)."
    ),
    "results-of-grids-have-one-order": (
        "(h w) and (w h) are other orders of the same places (einops, tutorial, part 1)."
    ),
    "results-of-boxes-scale-x-by-the-width": (
        "The corners of a box are x1, y1, x2, y2 (torchvision, BoundingBoxFormat)."
    ),
    "results-of-words-start-at-their-first-piece": (
        "The first piece of a word goes to the classifier (Devlin et al. 2019, section 5.3)."
    ),
    "results-of-accuracies-are-of-their-class": (
        "The accuracy of a class is a mean over its own rows (scikit-learn, recall_score)."
    ),
    "results-of-long-rows-keep-their-newest": (
        "Of a long sequence the most recent actions are kept, and a short one is padded on the left (Kang and McAuley "
        "2018, section 3.1)."
    ),
    "results-of-gains-begin-with-one": (
        "The first rank is not discounted (Järvelin and Kekäläinen 2002, section 2.2)."
    ),
    "results-of-pairs-count-each-time": (
        "Adding one at many places at once counts a place once, however often it is named (NumPy, assigning values to "
        "indexed arrays)."
    ),
    "results-of-gains-use-the-logarithm-of-two": (
        "A gain is divided by the logarithm to base 2 of its rank plus one (scikit-learn, sklearn.metrics.dcg_score)."
    ),
    "results-missed-and-false-are-counted-apart": (
        "What is missed and what is found wrongly are two counts (scikit-learn, precision_recall_fscore_support)."
    ),
    "results-of-writing-are-the-models-own": (
        "A measure of what a model writes is given what it writes behind its own words (Bengio et al. 2015, Scheduled "
        "sampling, abstract)."
    ),
    "results-of-ranks-are-of-scores": (
        "A measure of ranks is given scores without a threshold (scikit-learn, roc_auc_score)."
    ),
    "results-of-bits-divide-by-the-logarithm-of-two": (
        "Nats divided by the logarithm of 2 are bits (SciPy, scipy.stats.entropy)."
    ),
    "results-of-unions-count-each-once": ("A union has what is common to both once (scikit-learn, jaccard_score)."),
    "results-of-tables-are-read-as-filled": (
        "A table of labels and predictions is read as it is filled (scikit-learn, confusion_matrix)."
    ),
    "results-of-warm-ups-rise-by-shares": (
        "The rate rises in each step of a warm-up: // makes its share 0 (Python, Binary arithmetic operations)."
    ),
    "results-of-new-shapes-keep-the-order-of-axes": (
        "A new shape moves no numbers: axes that shall stand in another order are transposed first (PyTorch, view)."
    ),
    "results-of-measures-count-from-the-best": (
        "A measure of what stands first sorts scores from the best one on (scikit-learn, ndcg_score)."
    ),
    "results-of-short-answers-weigh-less": (
        "The weight of what is too short is exp(1 - reference / written) (Papineni et al. 2002, BLEU)."
    ),
    "results-of-draws-divide-by-the-temperature": (
        "A word is drawn of logits that are divided by the temperature (Holtzman et al. 2020, section 4.3)."
    ),
    "results-of-rows-return-to-their-order": (
        "The argsort of an order is its inverse, which puts the results of sorted rows back (NumPy, argsort)."
    ),
    "results-of-cross-entropies-are-of-logits": (
        "A cross-entropy takes the softmax itself, and is given logits (PyTorch, torch.nn.functional.cross_entropy)."
    ),
    "results-of-warm-ups-meet-their-fall": (
        f"The rate rises with the step times the warm-up to the power of -1.5 ({_VASWANI}, section 5.3)."
    ),
    "results-of-last-spans-are-closed": (
        "A span that goes on to the last tag ends there (seqeval, get_entities: an O is put behind the last tag)."
    ),
    "results-of-methods-are-kept": (
        "Methods that change a tensor have an underscore behind their name; all others give a new one, which must be "
        "used (torch.Tensor, documentation: initializing and basic operations)."
    ),
    "blocks-run-once-and-in-order": (
        f"A stack is N layers: each runs once, on what the layer before it gave ({_VASWANI}, section 3.1)."
    ),
    "blocks-are-wired-alike": f"The layers of a stack are identical in their structure ({_VASWANI}, section 3.1).",
    "sublayers-have-a-residual": (
        f"Around each sublayer stands a residual connection: x + sublayer(x) ({_VASWANI}, section 3.1)."
    ),
    "sublayers-add-their-input-once": (
        f"The input of a sublayer is added to its result once, as for all sublayers of a block ({_VASWANI}, 3.1)."
    ),
    "sublayers-add-their-own-input": (
        f"A sublayer's residual connection adds its own input, from before its norm if the other sublayers do so "
        f"({_VASWANI}, section 3.1; Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, fig. 1)."
    ),
    "sublayers-of-a-block-are-normed-in-one-place": (
        f"The output of each sublayer is LayerNorm(x + Sublayer(x)) ({_VASWANI}, section 3.1); norms on the branches "
        "are another design (Liu et al. 2021, Swin Transformer V2, fig. 1), and a block has one of the two."
    ),
    "decoder-layers-read-one-memory": (
        f"Every decoder layer attends to the output of the last encoder layer ({_VASWANI}, section 3.2.3)."
    ),
    "blocks-have-their-own-parameters": (
        "Layers differ in their parameters, unless they are meant to share them (Vaswani et al. 2017, "
        "Attention Is All You Need, section 3.3)."
    ),
    "experts-are-weighted-by-their-own-scores": (
        "Of two experts of a token, the one with the higher score counts more (Shazeer et al. 2017, "
        "Outrageously Large Neural Networks, section 2, equation 1)."
    ),
    "experts-are-weighted-by-one-softmax": (
        "The weights of a token's experts are the softmax of their scores, taken once (Shazeer et al. 2017, "
        "Outrageously Large Neural Networks, section 2.1, equation 3)."
    ),
    "experts-weights-sum-to-one-where-the-code-says": (
        "Where the code says that the weights of a token's experts sum to one, they do (Shazeer et al. 2017, "
        "Outrageously Large Neural Networks, section 2.1, equations 3 and 5)."
    ),
    "experts-that-are-chosen-count": (
        "The answer for a token is the sum of what its experts give (Shazeer et al. 2017, Outrageously Large Neural "
        "Networks, section 2, equation 1)."
    ),
    "feed-forward-function-is-what-it-is-called": (
        "A function of a feed-forward network computes what it is called (PyTorch documentation, "
        "torch.nn.GELU, torch.nn.SiLU)."
    ),
    "feed-forward-gate-has-its-function": (
        "A gate goes through its function before it multiplies (Shazeer 2020, GLU Variants Improve "
        "Transformer, section 2)."
    ),
    "feed-forward-gate-multiplies": (
        "A gate multiplies: it is not added (Shazeer 2020, GLU Variants Improve Transformer, section 2)."
    ),
    "class-token-is-read-where-it-stands": (
        "The state of the learned class token is what the head reads (Dosovitskiy et al. 2021, An Image is "
        "Worth 16x16 Words, section 3.1)."
    ),
    "patches-are-pieces-of-the-image": (
        "A token of an image or of frames is made of one patch or frame, with all of its features "
        "(Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, section 3.1)."
    ),
    "patches-are-answered-where-they-were": (
        "An image that is answered patch by patch has each patch where it was cut out (Peebles and Xie 2023, Scalable "
        "Diffusion Models with Transformers, section 3.2)."
    ),
    "results-of-labels-are-read-before-hiding": (
        "Labels are the words as they were before any was hidden (transformers, DataCollatorForLanguageModeling: "
        "labels are a copy of the inputs)."
    ),
    "results-of-ends-are-no-padding": (
        "Labels that are left out as padding are padding, and not the sign of the end (transformers, issue 23530)."
    ),
    "results-of-penalties-favour-nothing": (
        "A penalty for repetition makes no word likelier that was written (Keskar et al. 2019, CTRL, section 4.1; "
        "transformers, RepetitionPenaltyLogitsProcessor)."
    ),
    "results-of-scales-are-learned": (
        "What a module trains, saves and moves are its parameters and buffers (PyTorch documentation, torch.nn.Module)."
    ),
    "results-of-returns-reach-the-end": (
        "A return to go sums the rewards to the end of the episode (Chen et al. 2021, Decision Transformer, section 3)."
    ),
    "results-of-wanted-returns-fall": (
        "The return that is still wanted falls by each reward (Chen et al. 2021, Decision Transformer, algorithm 1)."
    ),
    "results-of-histories-are-of-their-newest": (
        "The newest entry of a history that is filled up in front is its last (Kang and McAuley 2018, Self-attentive "
        "sequential recommendation, section III.A)."
    ),
    "results-of-what-hides-stays-with-its-sample": (
        "The masks of one sample's heads stand side by side (PyTorch documentation, torch.nn.MultiheadAttention: "
        "attn_mask)."
    ),
    "results-of-paths-are-merged-first": (
        "Repeats of a path are merged before blanks are dropped (Graves et al. 2006, Connectionist temporal "
        "classification, section 3.1)."
    ),
    "results-of-scores-have-one-temperature": (
        "All scores of one softmax are divided by its temperature (Chen et al. 2020, SimCLR, equation 1)."
    ),
    "results-of-reciprocal-ranks-are-meant": (
        "A mean reciprocal rank is the mean of the reciprocals (Voorhees 1999, The TREC-8 question answering track)."
    ),
    "results-of-futures-are-hidden-as-read": (
        "A causal mask is made as attention reads it (Vaswani et al. 2017, Attention Is All You Need, section 3.2.3)."
    ),
    "results-of-pooling-are-means": (
        "Weights sum to one over the axis that they sum what they weigh over (Vaswani et al. 2017)."
    ),
    "results-of-queues-come-behind-the-loss": (
        "A batch goes into a queue of negatives behind its loss, so that no row has its own partner among them (He "
        "et al. 2020)."
    ),
    "results-of-z-terms-are-squares": (
        "A z-term is the mean of the squared log of the sum of exponentials (Chowdhery et al. 2022)."
    ),
    "results-behind-a-draft-follow-the-model": (
        "Where the word of a draft is refused, another one is drawn by what the model gives more of than the draft "
        "(Leviathan et al. 2023)."
    ),
    "results-of-rounds-read-their-own-stretch": (
        "Each round of a loop over stretches reads its own stretch of what is known beforehand (Lim et al. 2021)."
    ),
    "results-of-windows-count-what-is-new": (
        "Of windows that overlap only what is new in each is counted (Hugging Face Transformers documentation)."
    ),
    "results-of-longer-texts-have-known-angles": (
        "The factor by which texts may be longer divides the positions of a rotation (Chen et al. 2023)."
    ),
    "results-of-paths-end-with-their-row": (
        "The score of a path ends at the last real place of its row (Lample et al. 2016)."
    ),
    "results-of-texts-are-read-at-their-end": (
        "The end of a text is looked for by its own id (Hugging Face Transformers)."
    ),
    "results-of-places-begin-behind-padding": (
        "Places that are counted from a mask begin behind the row of padding (Hugging Face Transformers)."
    ),
    "results-of-columns-share-no-rows": (
        "The rows of a column in a common table begin behind all rows of the column before (Gorishniy et al. 2021)."
    ),
    "results-of-places-begin-with-the-text": (
        "Places of rows that are filled up in front are counted from the first real one (Hugging Face Transformers)."
    ),
    "results-of-long-rows-have-their-last-steps": (
        "Of a long row the steps right before the one that is asked for are kept (Kang and McAuley 2018)."
    ),
    "results-of-the-future-are-of-its-times": (
        "What is called the future is taken at the places of the future (Lim et al. 2021)."
    ),
    "results-of-joined-windows-are-means": (
        "A sum of weighted windows is divided by the sum of their weights (PyTorch documentation)."
    ),
    "results-of-bits-a-byte-count-bytes": ("Bits a byte are divided by the bytes of the text (Gao et al. 2020)."),
    "results-are-written-behind-words": (
        "Texts that are to be written on are filled up in front (Hugging Face Transformers documentation)."
    ),
    "results-of-merging-hold-all-neighbours": (
        "Of four neighbours that are merged each is taken once (Liu et al. 2021)."
    ),
    "results-of-shifts-are-undone": (
        "What is shifted before its windows is shifted back behind them (Liu et al. 2021)."
    ),
    "results-of-folded-rows-keep-what-hides": (
        "A mask is repeated in the order in which rows are folded into the batch (PyTorch documentation)."
    ),
    "results-of-lists-stay-with-their-query": (
        "Answers of flattened rows are grouped as these were flattened (PyTorch documentation)."
    ),
    "results-of-spans-end-behind-their-start": ("The best span does not end before it begins (Devlin et al. 2019)."),
    "results-of-sides-have-their-own-labels": (
        "The scores of each side of a span are compared with the labels of that side (Devlin et al. 2019)."
    ),
    "results-of-runs-reach-both-edges": (
        "A run that touches an edge of a row begins or ends there (NumPy documentation)."
    ),
    "results-of-mixtures-are-shares": (
        "A divergence gets logs of shares, and no softmax is taken of shares (PyTorch documentation)."
    ),
    "results-of-losses-read-what-is-padding": (
        "A loss that finds out which labels are padding leaves them out (PyTorch documentation)."
    ),
    "results-of-beams-keep-their-scores": (
        "Beams and their scores are picked by the same places (Sutskever et al. 2014)."
    ),
}
