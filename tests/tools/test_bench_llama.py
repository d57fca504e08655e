"""The LLaMA beside llama.cpp: its weights under the other names, and what is said where it cannot be compared."""

from dataclasses import replace

import numpy as np
import pytest

from tools.bench import __main__ as bench
from tools.bench import llama

SMALL = replace(
    llama.CONFIG, vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2,
)  # fmt: skip


def test_every_weight_has_one_name_and_its_own_values():
    values = llama.weights(SMALL)
    model = llama.built(SMALL, values)
    found = dict(llama.tensors(SMALL, values))
    assert len(found) == len(values) == len(dict(model.named_parameters()))
    assert {"token_embd.weight", "output.weight", "blk.1.attn_q.weight", "blk.0.ffn_down.weight"} <= set(found)
    assert found["blk.1.ffn_up.weight"] is values["layers.1.feed_forward.up_proj.weight"]
    assert model.lm_head.weight.detach().numpy().ctypes.data == values["lm_head.weight"].ctypes.data


def test_rows_of_a_head_become_neighbours_where_ours_are_halves():
    rows = np.arange(8)[:, None]
    assert llama._turned(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_logits_of_another_model_are_not_compared():
    llama.agree(np.array([1.0, 2.0]), np.array([1.0, 2.001]), 1e-3)
    for other in (2.1, np.nan):
        with pytest.raises(RuntimeError, match=r"differ from llama\.cpp's by"):
            llama.agree(np.array([1.0, 2.0]), np.array([1.0, other]), 1e-3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train --against llama.cpp", "it only decodes, so choose the job decode"),
        ("decode llama", "decode llama is timed beside llama.cpp: give --against llama.cpp"),
        ("decode llama --against llama.cpp --breakdown", "without --breakdown"),
        ("decode --against llama", "--against llama: choose from torch, torch.compile, llama.cpp"),
        ("decode gpt3", "decode has no gpt3: choose from tiny, nano, gpt2, llama"),
    ],
)
def test_a_bad_comparison_is_one_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        bench.parse(arguments.split())
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


def test_names_that_are_not_given_are_those_that_can_be_timed():
    assert "llama" not in bench.parse(["decode"]).names
    assert "llama" in bench.parse(["decode", "--against", "torch,llama.cpp"]).names


def test_without_llama_cpp_it_says_so(monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(llama, "there", lambda: False)
    assert bench.main(["decode", "--against", "torch,llama.cpp"]) == 2
    assert capsys.readouterr().err.strip() == llama.MISSING


def test_both_compute_the_same_in_every_precision(monkeypatch):
    monkeypatch.setattr(llama, "WRITTEN", 2)
    monkeypatch.setattr(llama, "PROMPT", 20)
    if not llama.there():
        pytest.skip("needs llama-cpp-python and gguf")
    found = llama.run(0.0, SMALL)  # raises where logits differ
    assert [result.job for result in found] == [
        f"{job} llama {kind}" for kind, _, _ in llama.KINDS for job in ("decode", "prefill")
    ]
    assert all("processor time" in result.notes for result in found)
