"""What the names of constructors' parameters mean, alone and beside each other."""

from __future__ import annotations

import pytest

from conformance.adapters.inference.construct import _Config
from conformance.adapters.inference.names import assigned, meanings, words_of


@pytest.mark.parametrize(
    ("names", "option"),
    [
        ("hid_dim ninp n_embd embedding_dimension model_dimension numHiddens normalized_shape", "d_model"),
        ("pf_dim nhid ffn_hidden feed_forward_hidden dim_feedforward d_inner encoder_ffn_dim f", "d_ff"),
        ("number_of_heads nhead encoder_attention_heads h", "n_heads"),
        ("num_key_value_heads n_kv_heads kv_heads", "n_kv_heads"),
        ("dropout_probability attn_pdrop p_drop drop_rate p attention_probs_dropout_prob", "dropout"),
        ("src_pad_idx trg_pad_idx padding_idx pad_token_id target_pad_index", "pad_id"),
        ("trg_sos_idx bos_token_id", "bos_id"),
        ("src_seq_len max_position_embeddings block_size maxlen n_ctx sequence_lenght_limit", "max_len"),
        ("V num_embeddings vocab_size ntoken", "vocab"),
        ("enc_voc_size n_src_vocab source_vocab_size", "src_vocab"),
        ("forward_expansion mlp_ratio ff_mult", "ff_ratio"),
        ("smoothing_value label_smoothing", "smoothing"),
        ("multiple_of", "multiple"),
    ],
)
def test_a_name_means_its_option_in_every_spelling(names: str, option: str) -> None:
    assert {name: meanings(name)[:1] for name in names.split()} == dict.fromkeys(names.split(), (option,))


@pytest.mark.parametrize(
    "name", ["self_attn", "feed_forward", "encoder_layer", "model", "embed", "add_bias_kv", "head"]
)
def test_the_name_of_a_part_or_of_something_else_means_no_option(name: str) -> None:
    assert meanings(name) == ()


def test_words_are_the_same_in_every_spelling() -> None:
    assert words_of("trg_pad_idx") == words_of("targetPadIndex") == words_of("tgt_padding_id") == {"tgt", "pad", "id"}


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("hidden_dim", "d_model"),
        ("d_model hidden_dim", "d_model d_ff"),
        ("hidden_dim d_model", "d_ff d_model"),
        ("hidden_size intermediate_size", "d_model d_ff"),
        ("input_dim hid_dim n_layers pf_dim", "vocab d_model n_layers d_ff"),
        ("input_dim num_heads dim_feedforward", "d_model n_heads d_ff"),
    ],
)
def test_a_name_of_several_meanings_has_the_one_that_is_left(names: str, options: str) -> None:
    assert assigned(names.split()) == dict(zip(names.split(), options.split(), strict=True))


def test_a_config_that_has_every_name_of_its_options_has_no_other() -> None:
    read: list[str] = []
    config = _Config({"d_model": 8}, read.append)
    assert config.n_embd == config["hidden_size"] == 8
    assert read == ["d_model", "d_model"]
    assert not hasattr(config, "nothing_of_the_kind")
