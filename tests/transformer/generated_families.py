"""Configurations of every family, drawn field by field, as both libraries understand them."""

from __future__ import annotations

import dataclasses
import re

from hypothesis import strategies as st

from transformer.checkpoints import FAMILIES
from transformer.models.family import ACTIVATIONS

VOCAB = 19


def _numbers(low, high):
    """Numbers with few digits, the two ends included."""
    return st.integers(0, 100).map(lambda part: low + (high - low) * part / 100)


_LAYERS, _WIDTHS = st.integers(1, 3), st.sampled_from([6, 12, 18])
_LABELS = st.integers(1, 4).map(lambda n: {str(i): f"LABEL_{i}" for i in range(n)})
_ROPE = st.one_of(
    st.fixed_dictionaries({"rope_type": st.just("default")}),
    st.fixed_dictionaries({"rope_type": st.just("linear"), "factor": _numbers(1, 8)}),
    st.fixed_dictionaries({"rope_type": st.just("dynamic"), "factor": _numbers(1, 8)}),
    st.fixed_dictionaries({
        "rope_type": st.just("yarn"), "factor": _numbers(1, 8), "original_max_position_embeddings": st.integers(8, 32),
    }, optional={"beta_fast": _numbers(4, 40), "truncate": st.booleans(), "attention_factor": _numbers(0.5, 2)}),
    st.fixed_dictionaries({
        "rope_type": st.just("llama3"), "factor": _numbers(1, 8), "low_freq_factor": st.just(1.0),
        "high_freq_factor": _numbers(2, 8), "original_max_position_embeddings": st.integers(8, 32),
    }),
)  # fmt: skip

# A field's values, by the first pattern that its name fits; None in a set of values is "absent".
FIELDS = [
    (r"vocab_size|decoder_vocab_size", st.just(VOCAB)),
    (r"n_positions|max_position_embeddings|max_target_positions", st.integers(24, 40)),
    (r"sliding_window|local_attention", st.integers(1, 12)),
    (r"max_window_layers|(\w*_)?layers?|n_layer|num_hidden_layers", _LAYERS),
    (r"n_embd|d_model|hidden_size|dim|word_embed_proj_dim", _WIDTHS),
    (r"num_key_value_heads", st.sampled_from([1, 2])),
    (r"n_head|num_heads|\w*_heads", st.sampled_from([2, 6])),
    (r"d_kv|head_dim", st.sampled_from([4, 6, 8])),
    (r"n_inner|d_ff|hidden_dim|ffn_dim|(moe_)?intermediate_size|\w+_ffn_dim", st.integers(1, 24)),
    (r"(classifier_)?activation(_function)?|hidden_act(ivation)?",
     st.sampled_from([name for name in ACTIVATIONS if name != "linear"])),
    (r"feed_forward_proj", st.sampled_from(["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "silu"])),
    (r"(\w*_)?dropout(_prob|_rate)?|hidden_dropout|\w+_pdrop", _numbers(0, 0.9)),
    (r"layer_norm_epsilon|layer_norm_eps|(rms_)?norm_eps", st.sampled_from([1e-12, 1e-6, 1e-3])),
    (r"initializer_range|init_std|initializer_factor", _numbers(0.01, 1)),
    (r"router_aux_loss_coef", _numbers(0, 1)),
    (r"type_vocab_size", st.integers(1, 4)),
    (r"pad_token_id", st.integers(0, VOCAB - 1)),
    (r"id2label", _LABELS),
    (r"relative_attention_num_buckets", st.sampled_from([4, 8, 32])),
    (r"relative_attention_max_distance", st.sampled_from([16, 40, 128])),
    (r"rope_parameters", _ROPE.flatmap(lambda table: _numbers(100, 1e6).map(
        lambda theta: {**table, "rope_theta": theta}))),
    (r"original_max_position_embeddings", st.integers(4, 16)),
    (r"query_pre_attn_scalar", st.integers(1, 30)),
    (r"\w+_logit_softcapping", _numbers(0.5, 40)),
    (r"layer_types", st.just("drawn")),
    (r"q_lora_rank|kv_lora_rank|qk_nope_head_dim|qk_rope_head_dim", st.sampled_from([4, 6, 8])),  # even, there
    (r"v_head_dim|n_shared_experts", st.integers(1, 3)),
    (r"first_k_dense_replace", st.integers(0, 3)),
    (r"n_routed_experts", st.sampled_from([4, 6])),
    (r"routed_scaling_factor", _numbers(0.5, 3)),
    (r"topk_method", st.sampled_from(["greedy", "group_limited_greedy"])),
    (r"n_group|topk_group", st.sampled_from([1, 2])),
    (r"classifier_pooling", st.sampled_from(["cls", "mean"])),
    (r"image_size", st.integers(8, 12)),
    (r"patch_size", st.integers(2, 8)),
    (r"num_channels|num_mel_bins", st.integers(1, 3)),
    (r"max_source_positions", st.integers(1, 8)),
    (r"num_local_experts", st.integers(2, 4)),
    (r"num_experts_per_tok", st.integers(1, 2)),
]  # fmt: skip


def _values(field: dataclasses.Field) -> st.SearchStrategy:
    """The values of a field of a configuration. Raises LookupError for one that nobody has thought of."""
    if field.type == "bool":
        return st.booleans()
    for pattern, strategy in FIELDS:
        if re.fullmatch(pattern, field.name):
            return st.none() | strategy if "None" in field.type else strategy
    raise LookupError(f"no values are known for the field {field.name}: add them to FIELDS")


@st.composite
def settings(draw, family):
    """The contents of a config.json of a small model: every field of the class, and one of its architectures."""
    model = FAMILIES[family]
    fields = [field for field in dataclasses.fields(model.config_class) if field.name != "extra"]
    drawn = {field.name: draw(_values(field), label=field.name) for field in fields}
    architecture = draw(st.sampled_from(list(model.architectures)), label="architecture")
    drawn = {**drawn, "model_type": family, "architectures": [architecture]}
    if family == "modernbert":
        other = draw(_values(next(field for field in fields if field.name == "rope_parameters")), label="windows")
        drawn["rope_parameters"] = {"full_attention": drawn["rope_parameters"], "sliding_attention": other}
    if family == "phi3":
        drawn["far"] = draw(st.booleans(), label="LongRoPE")
    return fitting(drawn)


def _far(drawn):
    """Positions of Phi-3, whose heads have 4 numbers: plain, or by LongRoPE."""
    plain = {"rope_type": "default", "rope_theta": drawn["rope_parameters"]["rope_theta"]}
    trained = drawn["original_max_position_embeddings"]
    factors = {"short_factor": [1.0, 1.5], "long_factor": [2.0, 3.5]}
    return (
        {**plain, **factors, "rope_type": "longrope", "original_max_position_embeddings": trained}
        if drawn["far"]
        else plain
    )


def fitting(drawn):
    """The settings, changed where two fields cannot stand beside each other in the other library."""
    if drawn["architectures"][0].endswith("QuestionAnswering"):
        drawn["id2label"] = None  # two labels: the first token of an answer, and the last
    if drawn.get("pad_token_id", 0) is None and drawn["model_type"] in ("t5", "bart", "marian"):
        drawn["pad_token_id"] = 3  # it asks them for one
    if "num_key_value_heads" in drawn and drawn.get("head_dim", 2) is None:
        drawn["hidden_size"] = 4 * drawn["num_attention_heads"]  # even heads, as rotation needs
    if drawn.get("layer_types") == "drawn":
        kinds = ["full_attention", "sliding_attention", "sliding_attention"]
        drawn["layer_types"] = kinds[: drawn["num_hidden_layers"]]
    if drawn["model_type"] in ("qwen2", "qwen3"):
        drawn["sliding_window"] = drawn["sliding_window"] or 3
        if not drawn["use_sliding_window"]:
            drawn["layer_types"] = None
    if drawn["model_type"] == "qwen2":
        drawn["head_dim"], drawn["hidden_size"] = None, 4 * drawn["num_attention_heads"]
    if drawn["model_type"] == "qwen3":
        drawn["head_dim"] = drawn["head_dim"] or 4
    if drawn["model_type"] == "gemma2":
        # a norm over one or two numbers with an eps of 1e-12 makes float32's rounding large on both sides
        drawn["head_dim"], drawn["hidden_size"] = drawn["head_dim"] or 4, 4 * drawn["num_attention_heads"]
        drawn["pad_token_id"] = drawn["pad_token_id"] or 0
        drawn["sliding_window"] = drawn["sliding_window"] or 3
    if drawn["model_type"] == "gemma":
        drawn["head_dim"], drawn["hidden_size"] = drawn["head_dim"] or 4, 4 * drawn["num_attention_heads"]
        drawn["num_key_value_heads"] = drawn["num_key_value_heads"] or drawn["num_attention_heads"]
        drawn["pad_token_id"] = drawn["pad_token_id"] or 0
        if drawn["hidden_act"] == "gelu":
            drawn["hidden_act"] = "gelu_pytorch_tanh"  # as which both read it
    if drawn["model_type"] in ("gpt_neox", "phi"):
        drawn["hidden_size"] = 16 * drawn["num_attention_heads"]  # of which a quarter or half is rotated
    if drawn["model_type"] == "modernbert":
        drawn["hidden_size"] = 4 * drawn["num_attention_heads"]
    if drawn["model_type"] == "phi3":
        drawn["head_dim"], drawn["hidden_size"] = None, 4 * drawn["num_attention_heads"]
        drawn["pad_token_id"] = drawn["pad_token_id"] or 0
        drawn["rope_parameters"] = _far(drawn)
    if drawn["model_type"] == "deepseek_v2":
        drawn["hidden_size"], drawn["head_dim"] = 4 * drawn["num_attention_heads"], drawn["qk_rope_head_dim"]
        drawn["num_key_value_heads"] = drawn["num_attention_heads"]
        if drawn["topk_method"] != "greedy":
            drawn["n_group"], drawn["topk_group"] = 2, drawn["topk_group"] or 1
            drawn["num_experts_per_tok"] = 1 if drawn["topk_group"] == 1 else drawn["num_experts_per_tok"]
    drawn.pop("far", None)
    if drawn["model_type"] in ("t5", "mt5"):
        drawn["num_decoder_layers"] = drawn["num_decoder_layers"] or drawn["num_layers"]
        farther = drawn["relative_attention_num_buckets"] + 1  # a decoder has half of them for single distances
        drawn["relative_attention_max_distance"] = max(drawn["relative_attention_max_distance"], farther)
    return drawn
