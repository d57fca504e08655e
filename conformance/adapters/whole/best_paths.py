"""Taggers that score paths of tags: whether the best path is found, and whether the paths share one whole.

A module that holds the scores of transitions, (K, K) or with more rows for the start and the end, is given scores of
its own, (T, K), and every path of tags is tried. Which axis of the transitions is the tag before is not known, and
neither is whether a table of True and False beside them says what is barred, or what is not: both are found, as that
with which the answers agree.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype, quiet_evaluation
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.used_functions import line_in, text_of
from conformance.protocol import NotProvided

_TRANSITIONS = re.compile(r"(tag_?)?trans(itions?)?(_?(scores?|matrix|params?|weights?))?")
_FINDS = re.compile(r"_*(crf_?)?(viterbi\w*|(batch_)?decode|best_paths?|find_best_path)")
_WEIGHS = re.compile(
    r"forward|_*(crf_?)?(nll|loss|neg(ative)?_log_likelihood|log_likelihood|llh|log_prob|loss_fn|crf_loss)"
)
_MASK, _LENGTHS, _TAGS = re.compile(r"mask"), re.compile(r"len(gth)?s?"), re.compile(r"(tag|label|target|y)s?(_ids)?")
_BARRED = -1e4
STEPS, TRIALS, PATHS = 4, 6, 4096
"""So many steps of scores, so often; and so many paths are tried."""
PADDED = 2
"""So many steps behind a text are padding."""


@dataclass(frozen=True)
class Found:
    """What a method gives: its name, its line, and whether it is right."""

    name: str
    place: str
    right: bool


class BestPathProbes(RunningModel):
    """The experiments, of a running model."""

    def best_paths(self) -> list[Found]:
        """Whether each method that looks for the best path finds it. Raises NotProvided where there is none."""
        found = []
        for path, tags, name, method in self._methods(_FINDS):
            draw = torch.Generator().manual_seed(99)
            trials: list[tuple[Tensor, Tensor, list[int]]] = []
            with suppress(Exception):  # it wants more, or gives something else
                for _ in range(TRIALS):
                    module, transitions = self._with_other_transitions(path, draw)
                    scores = 2 * torch.randn(STEPS, tags, generator=draw, dtype=self.torch_dtype)
                    best = self._path_of(getattr(module, name), scores)
                    trials.append((scores, transitions[:tags, :tags], best))
            if len(trials) == TRIALS:
                holder = self.module.get_submodule(path)
                bars, ends = _bars(holder, trials[0][1]), _barred_ends(holder, trials[0][0])
                right = any(
                    all(
                        _is_best(scores + end, (moves + bar).T if turned else moves + bar, best)
                        for scores, moves, best in trials
                    )
                    for turned, bar, end in itertools.product((False, True), bars, ends)
                )
                found.append(Found(name, line_in(method, r"\.max\(|argmax|maximum", r"def "), right))
        if not found:
            raise NotProvided("no method of it looks for the best path of tags")
        return found

    def whole_of_paths(self) -> list[Found]:
        """Whether the probabilities of all paths that a loss weighs sum to one. Raises NotProvided where none does."""
        found = []
        for path, tags, name, method in self._methods(_WEIGHS):
            own = inspect.getmembers(type(self.module.get_submodule(path)), inspect.isfunction)
            if not any(re.search(r"logsumexp|log_sum_exp|partition", text_of(one)) for _, one in own):
                continue
            steps = next((n for n in (3, 2) if tags**n <= PATHS), 0)
            axes = (0, 1, None) if steps else ()
            sums = [one for axis in axes for one in self._sums(path, name, (steps, tags), axis)]
            if sums:
                right = any(abs(one - 1) < 1e-4 for one in sums)
                found.append(Found(name, line_in(method, r"logsumexp|log_sum_exp", r"def "), right))
        if not found:
            raise NotProvided("no loss of it weighs paths of tags")
        return found

    def paths_behind_padding(self) -> list[Found]:
        """Whether each method that takes a mask or lengths gives a padded text what it gives the text alone: its path,
        or what its loss takes for it. Raises NotProvided where there is none."""
        found = []
        for finds, named in ((True, _FINDS), (False, _WEIGHS)):
            for path, tags, name, method in self._methods(named):
                words = [p.name.lower() for p in _parameters(method)]
                if not any(_MASK.search(one) or _LENGTHS.fullmatch(one) for one in words):
                    continue
                draw = torch.Generator().manual_seed(97)
                module, _ = self._with_other_transitions(path, draw)
                ways: dict[tuple[int | None, bool], list[bool]] = {}
                for _ in range(TRIALS):
                    scores = 2 * torch.randn(STEPS + PADDED, tags, generator=draw, dtype=self.torch_dtype)
                    for way in itertools.product((0, 1, None), (True, False)):
                        if (same := self._is_as_alone(getattr(module, name), finds, scores, *way)) is not None:
                            ways.setdefault(way, []).append(same)
                if ways:
                    right = any(len(same) == TRIALS and all(same) for same in ways.values())
                    found.append(Found(name, line_in(method, r"mask|len", r"def "), right))
        if not found:
            raise NotProvided("no method of it that scores paths of tags is told what is padding")
        return found

    def _methods(self, named: re.Pattern[str]) -> Iterator[tuple[str, int, str, Callable[..., Any]]]:
        """path of the module that holds transitions, how many tags there are, and its methods of such a name."""
        for path, module in self.module.named_modules():
            held = _transitions(module)
            if held is None or type(module).__module__.startswith("torch"):
                continue
            for name, method in inspect.getmembers(type(module), inspect.isfunction):
                if named.fullmatch(name) and method.__module__ == type(module).__module__:
                    yield path, min(held.shape), name, method

    def _with_other_transitions(self, path: str, draw: torch.Generator) -> tuple[nn.Module, Tensor]:
        """A copy of the module, with other transitions: those that are forbidden stay so."""
        module = self.twin().module.get_submodule(path)
        transitions = _transitions(module)
        assert transitions is not None
        with torch.no_grad():
            transitions += torch.randn(transitions.shape, generator=draw, dtype=torch.float64).to(transitions.dtype)
        return module, transitions.detach().to(self.torch_dtype)

    def _path_of(self, method: Callable[..., Any], scores: Tensor) -> list[int]:
        """The path that a method gives for scores (T, K). Raises where it takes none of the usual forms."""
        for given in (scores, scores[None], scores[:, None]):
            with suppress(Exception), quiet_evaluation(method.__self__), default_dtype(self.torch_dtype):  # type: ignore[attr-defined]
                made = method(given, **_beside(method, given))
                for path in _paths_in(made):
                    if len(path) == len(scores) and all(0 <= tag < scores.shape[1] for tag in path):
                        return path
        raise ValueError("it gives no path")

    def _is_as_alone(
        self, method: Callable[..., Any], finds: bool, scores: Tensor, axis: int | None, real: bool
    ) -> bool | None:
        """Whether a method gives the first steps of a text, whose other ones are padding, what it gives them alone.
        axis: where the batch stands, None for one text; real: what a mask says of real steps. None where it does not
        run so."""
        tags = torch.arange(len(scores)) % scores.shape[1]
        made = []
        with suppress(Exception), quiet_evaluation(method.__self__), default_dtype(self.torch_dtype):  # type: ignore[attr-defined]
            for steps in (len(scores), STEPS):
                given, mask, labels = (
                    x[:steps] if axis is None else x[:steps].unsqueeze(axis)
                    for x in (scores, (torch.arange(steps) < STEPS) == real, tags)
                )
                told = {p.name: mask for p in _parameters(method) if _MASK.search(p.name.lower())}
                told |= {
                    p.name: torch.tensor([STEPS]) for p in _parameters(method) if _LENGTHS.fullmatch(p.name.lower())
                }
                made.append(method(given, **({} if finds else {_label_of(method): labels}), **told))
        if len(made) < 2:
            return None
        if finds:
            paths = [next((path for path in _paths_in(one) if len(path) >= STEPS), None) for one in made]
            return None if None in paths else paths[0][:STEPS] == paths[1][:STEPS]  # type: ignore[index]
        numbers = [next((t for t in tensors_in(one) if t.is_floating_point() and t.numel() == 1), None) for one in made]
        if any(one is None for one in numbers):
            return None
        return bool(torch.allclose(numbers[0].reshape(()), numbers[1].reshape(()), atol=1e-6))  # type: ignore[union-attr]

    def _sums(self, path: str, name: str, sizes: tuple[int, int], axis: int | None) -> list[float]:
        """The sum of the probabilities of all paths, where what a loss gives is their logarithm, or the mean of it over
        the steps, with either sign. axis: where the batch stands. Empty where it takes no such scores."""
        scores = torch.randn(sizes, dtype=self.torch_dtype, generator=torch.Generator().manual_seed(98))
        module, other = (
            self._with_other_transitions(path, torch.Generator().manual_seed(seed))[0] for seed in (99, 100)
        )

        def value(holder: nn.Module, way: Sequence[int]) -> Tensor:
            method = getattr(holder, name)
            given, tags = (x if axis is None else x.unsqueeze(axis) for x in (scores, torch.tensor(way)))
            made = method(given, **{_label_of(method): tags}, **_beside(method, given))
            return next(t for t in tensors_in(made) if t.is_floating_point() and t.numel() == 1).reshape(())

        with suppress(Exception), quiet_evaluation(module), quiet_evaluation(other), default_dtype(self.torch_dtype):
            ways = list(_ways(*sizes))
            if torch.equal(value(module, ways[0]), value(other, ways[0])):
                return []  # it was given texts of one step
            weights = torch.stack([value(module, way) for way in ways])
            return [float((weights * by).exp().sum()) for by in (1, -1, sizes[0], -sizes[0])]
        return []


def _transitions(module: nn.Module) -> Tensor | None:
    """The scores of transitions that a module holds itself."""
    held = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    found = (x for name, x in held if _TRANSITIONS.fullmatch(name.lower()) and x.dim() == 2 and x.is_floating_point())
    return next((x for x in found if min(x.shape) > 1 and max(x.shape) - min(x.shape) <= 2), None)


def _bars(module: nn.Module, moves: Tensor) -> list[Tensor]:
    """What may be added to transitions (K, K) since they are barred: nothing, a table of numbers of their shape, and by
    each table of True and False a large number, where it says True or where it says False."""
    tables = [one[: len(moves), : len(moves)] for one in module.buffers(recurse=False) if one.dim() == 2]
    tables = [one for one in tables if one.shape == moves.shape]
    barred = (_BARRED * table for one in tables if one.dtype is torch.bool for table in (one, ~one))
    numbers = (one.to(moves.dtype) for one in tables if one.is_floating_point())
    return [torch.zeros_like(moves), *barred, *numbers]


def _barred_ends(module: nn.Module, scores: Tensor) -> list[Tensor]:
    """What may be added to scores (T, K) since a tag cannot be the first or the last: nothing, and what buffers (K,) of
    such names hold."""
    added = torch.zeros_like(scores)
    for name, one in module.named_buffers(recurse=False):
        if one.is_floating_point() and one.shape == scores.shape[1:]:
            places = [at for at, word in ((0, "start|begin|first"), (-1, "end|stop|last")) if re.search(word, name)]
            added[places] += one.to(scores.dtype)
    return [torch.zeros_like(scores), added]


def _parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


def _label_of(method: Callable[..., Any]) -> str:
    return next(p.name for p in _parameters(method)[1:] if _TAGS.fullmatch(p.name.lower()))


def _beside(method: Callable[..., Any], given: Tensor) -> dict[str, Tensor]:
    """Masks that hide nothing and lengths, where a method cannot do without them."""
    rows = given.shape[:-1]
    needed = [p.name for p in _parameters(method) if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    found: dict[str, Tensor] = {}
    for name in needed:
        if _MASK.search(name.lower()):
            found[name] = torch.ones(rows, dtype=torch.bool)
        elif _LENGTHS.fullmatch(name.lower()):
            found[name] = torch.tensor([max(rows)])
    return found


def _paths_in(made: Any) -> Iterator[list[int]]:
    """Lists of tags in a result: of one text, or of the only one of a batch; also in a tuple with their score."""
    for one in made if isinstance(made, tuple) else (made,):
        value = one.squeeze().tolist() if isinstance(one, Tensor) and not one.is_floating_point() else one
        while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list | Tensor):
            value = value[0].tolist() if isinstance(value[0], Tensor) else value[0]
        if isinstance(value, list):
            tags = [int(tag) for tag in value if isinstance(tag, int) or (isinstance(tag, Tensor) and tag.dim() == 0)]
            if len(tags) == len(value):
                yield tags


def _ways(steps: int, tags: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(tags), repeat=steps)


def _is_best(scores: Tensor, moves: Tensor, path: list[int]) -> bool:
    """Whether no path from the same first tag to the same last one has a higher score. What the start and the end add
    is the same for these. moves: (tag before, tag)."""
    inner = list(itertools.islice(_ways(len(path) - 2, scores.shape[1]), PATHS))
    ways = torch.tensor([[path[0], *way, path[-1]] for way in [*inner, path[1:-1]]])
    steps = torch.arange(len(path))
    values = scores[steps, ways].sum(1) + moves[ways[:, :-1], ways[:, 1:]].sum(1)
    return bool(values[-1] >= values.max() - 1e-6)
