"""A constructor that loads weights which are not there is run without them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters import SpecificationError  # noqa: E402
from conformance.adapters.whole.absent_weights import absent_weights  # noqa: E402

LOADS = {
    "of a checkpoint": "self.fc.load_state_dict(torch.load(path)['state_dict'])",
    "whose names are changed": "self.fc.load_state_dict({k[7:]: v for k, v in torch.load(path).items()})",
    "of a saved module": "self.fc.load_state_dict(torch.load(path, map_location='cpu').state_dict(), strict=True)",
    "of the network": "self.fc.load_state_dict(torch.hub.load_state_dict_from_url('file:///no/such/file.pth'))",
}
NET = """
class Net(nn.Module):
    def __init__(self, path='no_such_weights.pt'):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        LOADS

    def forward(self, x):
        return self.fc(x)
"""


@pytest.mark.parametrize("how", LOADS)
def test_weights_that_are_not_there_are_not_loaded(made, monkeypatch, tmp_path, how):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    found = made("Net", NET.replace("LOADS", LOADS[how]))
    assert found.fresh()(torch.zeros(2, 4)).shape == (2, 4)
    assert any(fact.subject == "weights" and "is not there" in fact.evidence for fact in found.facts)


def test_weights_that_are_there_are_loaded(made, tmp_path):
    torch.save({"weight": torch.full((4, 4), 3.0), "bias": torch.zeros(4)}, tmp_path / "here.pt")
    text = NET.replace("LOADS", "self.fc.load_state_dict(torch.load(path))")
    found = made("Net", text.replace("no_such_weights.pt", str(tmp_path / "here.pt")))
    assert found.fresh().fc.weight.mean() == 3
    assert all(fact.subject != "weights" for fact in found.facts)


@pytest.mark.parametrize("reads", ["self.fc = torch.load(path)(4)", "nn.Linear(torch.load(path)['dim'], 4)"])
def test_what_needs_the_file_for_more_is_refused(made, reads):
    with pytest.raises(SpecificationError, match="could not be made"):
        made("Net", NET.replace("LOADS", reads))


def test_a_module_that_is_told_to_load_nothing_still_complains(made):
    with pytest.raises(SpecificationError, match="Missing key"):
        made("Net", NET.replace("LOADS", "self.fc.load_state_dict({})"))


def test_a_tokenizer_that_is_not_here_knows_few_words():
    transformers = pytest.importorskip("transformers")
    with absent_weights():
        found = transformers.AutoTokenizer.from_pretrained("no/such-tokenizer-of-a-test")
    assert (len(found), found.pad_token_id, found.mask_token_id) == (1000, 0, 103)
    made = found("word3 nothing", padding="max_length", max_length=4, return_tensors="pt")
    assert made["input_ids"].tolist() == [[3, 100, 0, 0]]


def test_a_tokenizer_that_a_constructor_takes_is_one_of_few_words(made):
    pytest.importorskip("transformers")
    found = made(
        "Judge",
        """
import transformers
from torch import nn


class Judge(nn.Module):
    def __init__(self, tokenizer):
        super().__init__()
        self.yes = tokenizer(" yes", add_special_tokens=False)["input_ids"][0]
        self.table = nn.Embedding(len(tokenizer), 8, padding_idx=tokenizer.pad_token_id)
        self.head = nn.Linear(8, len(tokenizer))

    def forward(self, input_ids):
        return self.head(self.table(input_ids).mean(1))[:, self.yes]
""",
    )
    model = found.fresh()
    assert (model.table.num_embeddings, model.table.padding_idx, model.yes) == (1000, 0, 100)
