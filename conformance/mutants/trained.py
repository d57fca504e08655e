"""Mutants of a function that trains a model and stands beside it."""

from __future__ import annotations

from conformance.mutants.source import TRAINED, changed

changed(
    "FunctionNeverClears",
    TRAINED,
    "        optimizer.zero_grad(set_to_none=True)\n        loss.backward()\n",
    "        loss.backward()\n",
    breaks=("functions-that-train-clear-gradients",),
    defect="The function that trains never clears the gradients.",
)
changed(
    "FunctionClearsWhatItSteps",
    TRAINED,
    "        optimizer.zero_grad(set_to_none=True)\n        loss.backward()\n",
    "        loss.backward()\n        optimizer.zero_grad(set_to_none=True)\n",
    breaks=("functions-that-train-clear-gradients",),
    defect="The gradients are cleared between the backward pass and the step.",
)
changed(
    "FunctionClipsAfterTheStep",
    TRAINED,
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n        optimizer.step()\n",
    "        optimizer.step()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n",
    breaks=("functions-that-train-clip-what-is-stepped",),
    defect="Gradients are clipped after the step.",
)
changed(
    "FunctionGivesProbabilities",
    TRAINED,
    "logits = model(ids[:, :-1])",
    "logits = model(ids[:, :-1]).softmax(-1)",
    breaks=("functions-that-train-give-losses-what-they-take",),
    defect="The cross-entropy gets probabilities.",
)
changed(
    "FunctionAsksForWhatItShows",
    TRAINED,
    "loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    "loss = F.cross_entropy(logits.flatten(0, 1), ids[:, :-1].flatten())",
    breaks=("functions-that-train-ask-for-the-next-word",),
    defect="The labels are the words that the model is given.",
)
changed(
    "FunctionStaysInEvaluation",
    TRAINED,
    "        model.train()\n        for number",
    "        for number",
    breaks=("functions-that-train-stay-in-training-mode",),
    defect="The function evaluates after the first pass, and goes on in evaluation mode.",
)
changed(
    "FunctionAddsUpWholeLosses",
    TRAINED,
    "(loss / accumulation_steps).backward()",
    "loss.backward()",
    breaks=("functions-that-train-divide-what-they-accumulate",),
    defect="The losses of the batches of one step are added up, not averaged.",
)
changed(
    "FunctionMovesTheRateFirst",
    TRAINED,
    "                optimizer.step()\n                scheduler.step()\n",
    "                scheduler.step()\n                optimizer.step()\n",
    breaks=("functions-that-train-move-their-rate-with-the-steps",),
    defect="The rate moves before the step that it is meant for.",
)
changed(
    "AverageRunsAhead",
    TRAINED,
    "mul_(self.decay).add_(p, alpha=1 - self.decay)",
    "mul_(1 - self.decay).add_(p, alpha=self.decay)",
    breaks=("slow-copies-of-weights-follow-slowly",),
    defect="The average keeps little of itself: decay and the rest are exchanged.",
)
changed(
    "AverageGrows",
    TRAINED,
    "add_(p, alpha=1 - self.decay)",
    "add_(p)",
    breaks=("slow-copies-of-weights-follow-slowly",),
    defect="The whole weight is added to the average.",
)
changed(
    "FunctionScoresPadding",
    TRAINED,
    "(logarithms * (words != pad_id)).sum(1)",
    "logarithms.sum(1)",
    breaks=("numbers-of-texts-do-not-depend-on-their-neighbours",),
    defect="Padding is summed into the score of a text.",
)
changed(
    "MeansDividedByWords",
    TRAINED,
    "total += loss.item() * len(words)",
    "total += loss.item()",
    breaks=("evaluations-give-the-mean-of-what-they-add-up",),
    defect="Means of batches are added up and divided by the number of words.",
)
changed(
    "FunctionEvaluatesInTraining",
    TRAINED,
    "    model.eval()\n    with torch.no_grad():\n        losses",
    "    with torch.no_grad():\n        losses",
    breaks=("evaluations-are-in-evaluation-mode",),
    defect="The function that evaluates leaves the model in training mode.",
)
