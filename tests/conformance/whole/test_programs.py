"""Files that are programs, too: their definitions are tested without the lines that train or fail."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from conformance.adapters import SpecificationError, programs
from conformance.protocol import NotProvided

NET = """
class Net(nn.Module):
    def __init__(self, vocab=11):
        super().__init__()
        self.table = nn.Embedding(vocab, 8)
        self.head = nn.Linear(8, vocab)

    def forward(self, ids):
        return self.head(self.table(ids))
"""
TRAINED = {
    "in a loop": "for step in range(2):\n    trained()\n    net(ids).sum().backward()",
    "by a function": "def run(n):\n    trained()\n    n(ids).sum().backward()\nrun(net)",
    "by a function of another": "def run(n):\n    trained()\n    step(n)\ndef step(n):\n    n.backward()\nrun(net)",
    "by a name": "from loop_of_net import train\nlosses = train(net)",
}


@pytest.mark.parametrize("how", TRAINED)
def test_a_file_that_trains_when_it_is_imported_is_not_trained(made, tmp_path, how):
    mark = f"open({str(tmp_path / 'trained')!r}, 'w').close()"
    text = f"def trained():\n    {mark}\n{NET}\nnet, ids = Net(), torch.zeros(1, 3, dtype=torch.long)\n{TRAINED[how]}\n"
    files = {"loop_of_net.py": f"def train(net):\n    {mark}\n"}
    assert made("Net", text, files).fresh().head.out_features == 11
    assert not (tmp_path / "trained").exists()
    assert any("it trains" in one for one in programs.told(tmp_path / "model.py"))


SHOWN = {
    "by a call": "out = net(ids)",
    "in a loop": "for i in range(3):\n    print(net(ids).shape)",
    "by a method": "print(net.generate(ids))",
}


@pytest.mark.parametrize("how", SHOWN)
def test_a_model_that_a_file_runs_when_it_is_imported_is_not_run(made, tmp_path, how):
    ran = f"open({str(tmp_path / 'ran')!r}, 'w').close()"
    net = NET.replace("        return self", f"        {ran}\n        return self")
    net += "\n    def generate(self, ids):\n        return self(ids)\n"
    text = f"{net}\nnet, ids = Net(), torch.zeros(1, 3).long()\nnet = Net().eval()\nnet.train()\n{SHOWN[how]}\n"
    assert made("Net", text).fresh().head.out_features == 11
    assert not (tmp_path / "ran").exists()
    (told,) = programs.told(tmp_path / "model.py")
    assert told.endswith("of model.py is left out: it runs a model")


def test_weights_that_a_file_asks_for_when_it_is_imported_are_left_out(made, tmp_path):
    asks = "    @classmethod\n    def from_pretrained(cls):\n        raise TimeoutError\n"
    text = f"{NET}\n{asks}\nnet = Net.from_pretrained()\nprint(net(torch.zeros(1, 3).long()))\n"
    assert made("Net", text).fresh().head.out_features == 11
    first, second = programs.told(tmp_path / "model.py")
    assert first.endswith("of model.py is left out: it asks for weights")
    assert "NameError" in second


def test_a_start_of_the_program_is_no_training_at_import(made, tmp_path):
    made("Net", NET + "\nif __name__ == '__main__':\n    Net()(torch.zeros(1, 3).long()).sum().backward()\n")
    assert programs.told(tmp_path / "model.py") == []


def test_data_that_are_not_there_are_left_out(made, tmp_path):
    text = (
        "text = open('no_such_file.csv').read()\nwords = set(text)\ndef encode(s):\n    return [words[c] for c in s]\n"
    )
    assert made("Net", text + NET).fresh().head.out_features == 11
    told = programs.told(tmp_path / "model.py")
    assert told[0].endswith(
        "of model.py is left out: it raises FileNotFoundError: [Errno 2] No such file or directory: 'no_such_file.csv'"
    )
    assert "encode is left out: it reads words" in told


@pytest.mark.parametrize("reads", ["n_words", "size()"])
def test_a_class_that_needs_what_is_left_out_is_refused_as_before(made, reads):
    text = "n_words = len(open('no_such_file.csv').read())\n\ndef size():\n    return n_words\n"
    with pytest.raises(SpecificationError, match=r"importing it opens the file no_such_file\.csv"):
        made("Net", text + NET.replace("nn.Embedding(vocab, 8)", f"nn.Embedding({reads}, 8)"))


@pytest.mark.parametrize(
    "reads", ["open('corpus.txt', encoding='utf-8').read()", "__import__('pathlib').Path('corpus.txt').read_text()"]
)
def test_for_a_corpus_that_is_not_here_a_short_text_stands_in(made, tmp_path, reads):
    text = f"text = {reads}\nn_words = len(set(text))\n"
    net = NET.replace("nn.Embedding(vocab, 8)", "nn.Embedding(n_words, 8)")
    assert 40 < made("Net", text + net).fresh().table.num_embeddings < 100
    assert "corpus.txt is not here: a short text stands in for it" in programs.told(tmp_path / "model.py")
    (tmp_path / "corpus.txt").write_text("abc")
    assert made("Net", text.replace("corpus", f"{tmp_path}/corpus") + net).fresh().table.num_embeddings == 3


def test_what_is_written_is_no_corpus(made, tmp_path):
    made("Net", f"open('{tmp_path}/no_folder/corpus.txt', 'w').write('abc')\n" + NET)
    assert "it raises FileNotFoundError" in programs.told(tmp_path / "model.py")[0]


def test_what_another_file_lacks_is_left_out_there(made):
    files = {"words_of_net.py": "WORDS = 13\nTEXT = open('no_such_file.txt').read()\n"}
    assert (
        made("Net", "from words_of_net import WORDS\n" + NET.replace("vocab=11", "vocab=WORDS"), files)
        .fresh()
        .head.out_features
        == 13
    )


SHARED = """
SETTINGS = {"n_layers": 4, "d_model": 8}

class Plain(nn.Module):
    def __init__(self, config=SETTINGS):
        super().__init__()
        self.table = nn.Embedding(11, config["d_model"])
        self.head = nn.Linear(config["d_model"], 11)

    def forward(self, ids):
        return self.head(self.table(ids))
"""
DEEP = """
class Deep(Plain):
    def __init__(self, config=SETTINGS):
        super().__init__(config)
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(config["n_layers"])))
"""


def test_settings_that_another_class_reads_are_no_option_of_this_one(made):
    with pytest.raises(NotProvided, match="no option for n_layers"):
        made("Plain", SHARED + DEEP).fresh(n_layers=3)
    assert len(made("Deep", SHARED + DEEP).fresh(n_layers=3).layers) == 3
    made("Plain", SHARED).fresh(n_layers=3)  # nobody reads it: that is for a claim to say


def test_in_the_sandbox_a_file_runs_whole_or_is_refused(made, monkeypatch):
    text = NET + "\nopen('no/such/file')\n"
    assert made("Net", text).fresh().head.out_features == 11
    monkeypatch.setattr("conformance.sandbox.is_entered", lambda: True)
    with pytest.raises(SpecificationError, match="importing it opens the file no/such/file"):
        made("Net", text, file="again.py")
