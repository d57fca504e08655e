"""Beam searches in other styles: right ones find the likeliest pair of words, wrong ones do not."""

import pytest

pytest.importorskip("torch")

from wholes import told

from conformance.mutants.source import TRANSLATOR

BEST_PAIR = "beam-search-with-all-words-finds-the-best"
OTHER = "    def search_beams(self, src, start_id=1, end_id=2, beam_size=3, max_len=10, alpha=0.6):\n"
SEARCH = '''    def search_beams(self, src, beam=3, max_len=10):
        """The best target of one source as a list of words. It looks at two words for each beam, so that enough stay
        where half of them end."""
        marks, src_mask = self.options.marks, self.make_src_mask(src)
        memory, alive, done = self.encode(src, src_mask), [([1], 0.0)], []
        for _ in range(max_len):
            tgt = torch.tensor([words for words, _ in alive])
            logits = self.decode(tgt, memory.expand(len(tgt), -1, -1), src_mask, self.make_tgt_mask(tgt))[:, -1]
            logits[:, [0, 1, *range(7, 19)]] = float("-inf")
            total = logits.log_softmax(-1) + torch.tensor([score for _, score in alive])[:, None]
            values, flat = total.flatten().topk(2 * beam)
            grown, places = [], [divmod(i, logits.size(-1)) for i in flat.tolist()]
            for value, (row, word) in zip(values.tolist(), places, strict=True):
                (done if word == marks.eos else grown).append(([*alive[row][0], word], value))
            alive = grown[:beam]
        return max(done or alive, key=lambda found: found[1])[0][1:]

    def other(self, src, start_id=1, end_id=2, beam_size=3, max_len=10, alpha=0.6):
'''
SETTINGS = {
    "class PositionalEncoding(": (
        "from typing import NamedTuple\n\n\nclass Marks(NamedTuple):\n    eos: int = 2\n\n\n"
        "class Options(NamedTuple):\n    marks: Marks = Marks()\n\n\nclass PositionalEncoding("
    ),
    "        self.generator =": "        self.options = Options()\n        self.generator =",
    "def beam_search(": "def narrow(",
}
STYLES = {
    "two words a beam": ("", "", "PASS"),
    "words barred behind the softmax": ("", "", "PASS"),
    "the last word only": (" + torch.tensor([score for _, score in alive])[:, None]", "", "FAIL"),
    "the worst of the beams": ("grown[:beam]", "grown[-beam:]", "FAIL"),
    "histories of other beams": ("*alive[row][0]", "*alive[row - 1][0]", "FAIL"),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_beam_search_finds_the_likeliest_pair(made, style):
    old, new, expected = STYLES[style]
    assert old in SEARCH
    search = SEARCH.replace(old, new) if old else SEARCH
    if style == "words barred behind the softmax":
        logits, total = '            logits[:, [0, 1, *range(7, 19)]] = float("-inf")\n', "            values, flat"
        search = search.replace(logits, "").replace(total, logits.replace("logits", "total") + total)
    assert told(made, TRANSLATOR, BEST_PAIR, {**SETTINGS, OTHER: search}) == expected
