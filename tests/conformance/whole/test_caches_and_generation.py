"""Models that write, in the styles of the field: correct ones break no claim, one changed line breaks the right one."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow import one_in

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "decoding_subjects"))

import writing  # noqa: E402
from wholes import Whole, told  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import parse  # noqa: E402
from conformance.adapters.whole.choices import Choices  # noqa: E402
from conformance.adapters.whole.making import made_of  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.checks.generation import alike  # noqa: E402
from conformance.mutants.source import TRANSLATOR  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import BROKEN, Verdict  # noqa: E402

ROOMS = ("generation", "drawing", "caches", "precision")
CLAIMS = [claim for claim, check in CHECKS.items() if check.function.__module__.rpartition(".")[2] in ROOMS]

CACHED = "cached-steps-give-the-logits-of-one-pass"
BEST = "generate-takes-the-best-token"
GREEDY = "generate-is-greedy-where-asked"
MANY = "generate-writes-as-many-tokens-as-asked"
PROMPT = "generate-gives-the-prompt-back-unchanged"
LAST = "generate-reads-the-last-tokens-of-a-long-text"
LEAVES = "generate-leaves-the-model-as-it-was"
FORGETS = "generate-does-not-remember-other-prompts"
ENDS = "generate-stops-at-the-end-token"
BEAM = "generate-with-one-beam-is-greedy"
TEMPERATURE = "generate-divides-logits-by-temperature"
TOP_K = "generate-with-top-k-draws-from-the-k-best"
TOP_P = "generate-with-top-p-keeps-the-token-that-crosses-p"
HALF = "half-precision-gives-no-nan"
AUTOCAST = "autocast-gives-no-nan"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are slower in several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


_numbers = itertools.count()


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Callable[..., Whole]]:
    """whole("nano", old, new): the model of a style, with one line of its file changed."""
    names = []

    def make(style: str, old: str = "", new: str = "") -> Whole:
        name = f"style_{next(_numbers)}"
        names.append(name)
        path = tmp_path / f"{name}.py"
        path.write_text(writing.source(style, old, new))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        cls = writing.STYLES[style][1]
        return Whole(whole_model(made_of(getattr(module, cls), parse(f"{path}:{cls}"))))

    yield make
    for name in names:
        sys.modules.pop(name, None)


def verdict(claim: str, impl: Whole) -> Any:
    return run_check(CHECKS[claim], impl, "quick")


@pytest.mark.parametrize("style", writing.STYLES)
def test_a_correct_model_breaks_no_claim(style: str, whole: Callable[..., Whole]) -> None:
    impl = whole(style)
    found = {claim: verdict(claim, impl) for claim in CLAIMS}
    broken = {claim: f"{r.verdict} {r.message} {r.diagnosis}" for claim, r in found.items() if r.verdict in BROKEN}
    assert not broken
    kept = {claim for claim, result in found.items() if result.verdict is Verdict.PASS}
    assert kept >= KEPT[style]


KEPT = {
    "nano": {BEST, GREEDY, MANY, LAST, LEAVES, FORGETS, ENDS, TEMPERATURE, TOP_K, TOP_P, HALF},
    "exponential": {BEST, GREEDY, MANY, LEAVES, FORGETS, TEMPERATURE, TOP_K},
    "sorted": {BEST, GREEDY, FORGETS, TEMPERATURE, TOP_P},
    "tuples": {CACHED},
    "hugging": {CACHED, BEST, MANY, FORGETS},
    "dictionary": {CACHED, BEST, FORGETS, TEMPERATURE},
    "static": {CACHED, BEST, MANY, FORGETS},
    "stateful": {CACHED, BEST, MANY, FORGETS},
    "object": {CACHED, BEST, FORGETS},
    "translator": {CACHED, BEST, FORGETS, ENDS, BEAM},
    "plain": {HALF, AUTOCAST},
}
"""What each style must show: a claim that silently found nothing to test would hide a mistake."""

NAN = ('scores.masked_fill(j > i, float("-inf"))', "(scores + (j > i) * torch.tensor(-1e9).to(scores))")

MUTANTS = [
    ("nano", "/ temperature", "", TEMPERATURE),
    ("nano", "/ temperature", "* temperature", TEMPERATURE),
    ("nano", "idx[:, -self.block_size:]", "idx[:, :self.block_size]", LAST),
    ("nano", "values[:, -1:]", "values[:, :1]", TOP_K),
    ("nano", "torch.topk(logits, top_k)", "torch.topk(logits, top_k + 1)", TOP_K),
    ("nano", "mass - ranked.softmax(-1) >= top_p", "mass >= top_p", TOP_P),
    ("nano", "remove.scatter(1, order, remove)", "remove", TOP_P),
    ("nano", "finished |= token", "finished = token", ENDS),
    ("nano", "if finished.all():", "if finished.any():", ENDS),
    ("nano", "== eos_token_id", "== -eos_token_id", ENDS),
    ("nano", "self.train(was_training)", "pass", LEAVES),
    ("nano", "self.train(was_training)", "self.train()", LEAVES),
    ("nano", "self(window)[:, -1]", "self(window)[:, 0]", BEST),
    ("nano", "self(window)[:, -1]", "self(window)[:, -1].flip(0)", BEST),
    ("nano", "probs.argmax", "probs.argmin", BEST),
    ("nano", "if do_sample:", "if not do_sample:", GREEDY),
    ("nano", "range(max_new_tokens)", "range(max_new_tokens - 1)", MANY),
    ("nano", "range(max_new_tokens)", "range(max_new_tokens + 1)", MANY),
    ("nano", "torch.cat([idx, token], 1)", "torch.cat([token, idx], 1)", PROMPT),
    ("exponential", " / max(temperature, 1e-5)", "", TEMPERATURE),
    ("exponential", "[0][-1]", "[0][0]", TOP_K),
    ("exponential", "[0, -1] /", "[0, 0] /", BEST),
    ("sorted", "mass - ranked > p", "mass > p", TOP_P),
    (
        "sorted",
        "torch.gather(order, -1, torch.multinomial(ranked, num_samples=1))",
        "torch.multinomial(ranked, 1)",
        BEST,
    ),
    ("sorted", "if temperature > 0:", "if temperature >= 0:", GREEDY),
    ("tuples", "torch.cat([past[1], v], dim=2)", "torch.cat([v, past[1]], dim=2)", CACHED),
    ("tuples", "torch.arange(start, start + input_ids.shape[1])", "torch.arange(input_ids.shape[1])", CACHED),
    ("hugging", "torch.cat([past[0], k], dim=2)", "torch.cat([k, past[0]], dim=2)", CACHED),
    ("hugging", "torch.arange(start, start + input_ids.shape[1])", "torch.arange(input_ids.shape[1])", CACHED),
    ("hugging", "past_key_values[i])", "past_key_values[0])", CACHED),
    ("hugging", "            start = past[0].shape[2]", "            start = 0", CACHED),
    ("hugging", "logits[:, -1:]", "logits[:, :1]", BEST),
    ("hugging", "fed = logits", "past, fed = None, logits", CACHED),
    ("dictionary", "prompt[:, t:t + 1], cache=cache, offset=t", "prompt[:, t:t + 1], cache=cache", BEST),
    ("dictionary", "cache[self.index] = (k, v)", "cache[0] = (k, v)", CACHED),
    ("dictionary", "token[:, None], cache=cache, offset=t", "token[:, None], cache=cache, offset=t + 1", CACHED),
    ("static", "self.k[:, :, input_pos] = k", "self.k[:, :, :k.shape[2]] = k", CACHED),
    ("static", "causal[input_pos][:, :", "causal[:len(input_pos)][:, :", CACHED),
    ("static", "where, mask = input_pos,", "where, mask = torch.arange(idx.shape[1]),", CACHED),
    ("static", "torch.tensor([at])", "torch.tensor([at + 1])", CACHED),
    ("stateful", "model.reset_kv_cache()", "pass", FORGETS),
    ("stateful", "layer.reset_cache()\n        self.current_pos = 0", "layer.reset_cache()", FORGETS),
    ("stateful", "self.current_pos += in_idx.shape[1]", "self.current_pos = in_idx.shape[1]", CACHED),
    ("stateful", "self.cache_k, self.cache_v = k, v", "self.cache_k, self.cache_v = v, k", CACHED),
    ("object", "rotate(k, start)", "rotate(k, 0)", CACHED),
    ("object", "self.length += k.shape[2]", "self.length = k.shape[2]", CACHED),
    ("object", "[LayerCache() for _ in self.qkvs]", "[LayerCache()] * L", CACHED),
    ("object", "torch.arange(start, start + x.shape[2])", "torch.arange(start + x.shape[2])", BEST),
    ("translator", "cache, start=step)", "cache)", CACHED),
    ("translator", 'torch.cat([cache["v"], v], 2)', 'torch.cat([v, cache["v"]], 2)', CACHED),
    ("translator", "done = done | (token == eos_id)", "done = token == eos_id", ENDS),
    ("translator", "if done.all():", "if done.any():", ENDS),
    ("translator", "torch.tensor([ids]))[0, -1]", "torch.tensor([ids]))[0, 0]", BEAM),
    ("plain", *NAN, HALF),
    ("plain", *NAN, AUTOCAST),
]


@pytest.mark.parametrize(("style", "old", "new", "claim"), one_in(4, MUTANTS))
def test_one_changed_line_breaks_the_right_claim(
    style: str, old: str, new: str, claim: str, whole: Callable[..., Whole]
) -> None:
    result = verdict(claim, whole(style, old, new))
    assert result.verdict is Verdict.FAIL, f"{result.verdict} {result.message} {result.what} {result.got}"
    assert result.diagnosis


@pytest.mark.parametrize(
    ("style", "old", "new", "claim", "words"),
    [
        ("nano", "/ temperature", "* temperature", TEMPERATURE, "multiplied"),
        ("nano", "/ temperature", "", TEMPERATURE, "changes nothing"),
        ("nano", "mass - ranked.softmax(-1) >= top_p", "mass >= top_p", TOP_P, "crosses p is dropped"),
        ("hugging", "fed = logits", "past, fed = None, logits", CACHED, "sees the last 1 tokens only"),
        (
            "hugging",
            "            start = past[0].shape[2]",
            "            start = 0",
            CACHED,
            "does not see tokens 1, 2, 3, 4",
        ),
        ("nano", "self(window)[:, -1]", "self(window)[:, -1].flip(0)", BEST, "of the batch"),
    ],
)
def test_a_diagnosis_names_the_mistake_and_a_line(
    style: str, old: str, new: str, claim: str, words: str, whole: Callable[..., Whole]
) -> None:
    result = verdict(claim, whole(style, old, new))
    assert words in result.diagnosis
    assert ".py:" in result.place


@pytest.mark.parametrize(
    ("style", "old", "new"),
    [
        ("hugging", "k = torch.cat([past[0], k], dim=2)", "k = torch.cat([k, past[0]], dim=2)"),
        (
            "hugging",
            "places = torch.arange(start, start + input_ids.shape[1])",
            "places = torch.arange(input_ids.shape[1])",
        ),
        ("tuples", "v = torch.cat([past[1], v], dim=2)", "v = torch.cat([v, past[1]], dim=2)"),
        ("static", "self.v[:, :, input_pos] = v", "self.v[:, :, input_pos] = k"),
    ],
)
def test_a_wrong_step_names_the_line_that_differs_from_one_pass(
    style: str, old: str, new: str, whole: Callable[..., Whole]
) -> None:
    result = verdict(CACHED, whole(style, old, new))
    assert result.verdict is Verdict.FAIL
    assert result.place.partition(": ")[2] == new


def test_a_writer_follows_a_script_and_tells_what_it_chose_from(whole: Callable[..., Whole]) -> None:
    subject = whole("hugging").model
    (writer,) = subject.writers()
    ids = subject.example(2, 5)["ids"]
    words = np.array([[5, 6, 7], [9, 8, 4]])
    written = writer.write(subject, {"ids": ids}, 3, script=words)
    assert written.kept
    assert written.cached
    np.testing.assert_array_equal(written.new, words)
    np.testing.assert_array_equal(written.raw[:, :5], ids)
    assert [step.fed for step in written.steps] == [5, 1, 1]
    np.testing.assert_allclose(written.steps[0].scores, subject.next_logits(ids), atol=1e-9)


def test_a_script_is_followed_where_what_is_drawn_from_was_sorted() -> None:
    scores = torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
    words = np.array([[5], [2]])
    with Choices(set(), 7, 2, -1, words):
        ranked, order = scores.softmax(-1).sort(dim=-1, descending=True)
        sorted_one = order.gather(-1, torch.multinomial(ranked, 1))
        plain = torch.multinomial(scores.softmax(-1), 1)
    np.testing.assert_array_equal(sorted_one, words)
    np.testing.assert_array_equal(plain, words)


@pytest.mark.parametrize(
    ("said", "verdict_of"),
    [
        ("A row that reached its end is filled with padding.", Verdict.FAIL),
        ("PAD after EOS", Verdict.FAIL),
        ("The prompt is padded. Stops once every row is done.", Verdict.PASS),
    ],
)
def test_an_ended_row_may_go_on_unless_its_code_says_that_it_is_filled(
    said: str, verdict_of: Verdict, whole: Callable[..., Whole]
) -> None:
    assert verdict(ENDS, whole("nano", "token[finished] = 0", f"pass  # {said}")).verdict is verdict_of


def test_a_distribution_is_that_of_tokens_where_the_columns_are_sorted(whole: Callable[..., Whole]) -> None:
    subject = whole("sorted").model
    (writer,) = subject.writers()
    ids = subject.example(1, 5)["ids"]
    logits = subject.next_logits(ids)[0]
    found = writer.distribution(subject, {"ids": ids}, top_p=1.0, temperature=1.0)[0]
    np.testing.assert_allclose(found, np.exp(logits) / np.exp(logits).sum(), atol=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "def generate(self, input_ids, max_new_tokens=20",
            "def generate(self, input_ids, grammar, n=20",
            "grammar",
        ),
        ("past, fed = None, input_ids", "raise RuntimeError('no weights')", "no weights"),
    ],
)
def test_what_cannot_be_called_is_not_provided_with_the_reason(
    old: str, new: str, reason: str, whole: Callable[..., Whole]
) -> None:
    result = verdict(BEST, whole("hugging", old, new))
    assert result.verdict is Verdict.NOT_PROVIDED
    assert reason in result.message


def test_conventions_are_notes(whole: Callable[..., Whole]) -> None:
    found = {claim: verdict(claim, whole("stateful")).verdict for claim in (PROMPT, LEAVES)}
    assert found == {PROMPT: Verdict.NOTE, LEAVES: Verdict.NOTE}


def test_a_cache_is_fed_where_a_window_hides_the_first_token_from_the_last_one(whole: Callable[..., Whole]) -> None:
    windowed = whole("tuples", "masked_fill(j > i,", "masked_fill((j > i) | (i - j > 1),")
    assert verdict(CACHED, windowed).verdict is Verdict.PASS


LENGTH = "beam-search-divides-by-the-length-of-each-sentence"


@pytest.mark.parametrize(("named", "expected"), [("alpha", "PASS"), ("-alpha", "FAIL")], ids=["divided", "multiplied"])
def test_a_larger_power_of_the_length_makes_no_sentence_shorter(made, named, expected):
    changes = {
        "beam_size=3, max_len=10, alpha=0.6": "width=3, max_len=10, alpha=0.6",
        "        memory, done = self.encode(src, src_mask), []": (
            "        beam_size, memory, done = width, self.encode(src, src_mask), []"
        ),
        "        return sorted(done, key=lambda found: found[1], reverse=True)[:beam_size]": (
            f"        done = [(b, s * len(b) ** alpha / len(b) ** ({named})) for b, s in done]\n"
            "        return torch.tensor([max(done, key=lambda found: found[1])[0]])"
        ),
    }
    assert told(made, TRANSLATOR, LENGTH, changes) == expected


def test_scores_are_compared_without_words_that_are_never_written() -> None:
    """The scores of all other words tell a wrong step, though the best word is the same."""
    own = np.random.default_rng(0).standard_normal((2, 7))
    barred = np.where(np.arange(7) < 2, -np.inf, own + 3.0)
    assert alike(barred, own) < 1e-12
    assert alike(barred + 1e-3 * np.arange(7), own) > 1e-4
    assert alike(np.full_like(own, -np.inf), own) == np.inf


BEAM_OF_A_BATCH = "    def beam_search(self, src, beam_size=3, max_len=10):\n"
ROW_BY_ROW = """    def beam_search(self, src, beam_size=3, max_len=10):
        return [self._search(row[None], beam_size, max_len) for row in src]

    def _search(self, src, beam_size, max_len):
        memory, ys, scores = self.encode(src), torch.full((1, 1), BOS), torch.zeros(1)
        for _ in range(max_len):
            lp = self.decode(memory.expand(len(ys), -1, -1), ys)[:, -1].log_softmax(-1)
            lp[:, [PAD, BOS, 5]] = float("-inf")
            scores, flat = (scores[:, None] + lp).flatten().topk(2 * beam_size)
            scores, flat = scores[:beam_size], flat[:beam_size]
            ys = torch.cat([ys[flat // V], (flat % V)[:, None]], 1)
        return ys[0, 1:].tolist()

    def _other(self, src, beam_size=3, max_len=10):
"""


@pytest.mark.parametrize(
    ("edit", "expected"),
    [("", Verdict.PASS), ("self.decode(memory.expand(len(ys), -1, -1), ys[:, :1])[:, -1]", Verdict.FAIL)],
)
def test_a_beam_that_takes_its_rows_one_by_one_and_bars_marks(whole, edit, expected):
    """Each row begins with the start sign. What is minus infinity in all that is chosen from is never the best."""
    right = "self.decode(memory.expand(len(ys), -1, -1), ys)[:, -1]"
    impl = whole("translator", BEAM_OF_A_BATCH, ROW_BY_ROW.replace(right, edit or right))
    assert verdict(BEAM, impl).verdict is expected
