"""The models: a class of the library `transformers`, what kind of model it is, and small settings for its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from conformance.adapters.whole.sizes import meaning
from transformer.checkpoints import FAMILIES

RATE = 0.1


@dataclass(frozen=True)
class Row:
    """architecture: the class of the library. kind: its role as a whole model. given: settings of its config."""

    architecture: str
    kind: str
    given: Mapping[str, Any]

    @property
    def family(self) -> type[Any]:
        """Our class for it."""
        return next(family for family in FAMILIES.values() if self.architecture in family.architectures)

    @property
    def model_type(self) -> str:
        return str(self.family.config_class.model_type)

    @property
    def sees(self) -> bool:
        """Whether it is given images, and no words."""
        return "vocab_size" not in self.given

    @property
    def hears(self) -> bool:
        """Whether it writes words about frames of sound, which are the same ones whenever it is asked."""
        return "num_mel_bins" in self.given

    @property
    def has_loss(self) -> bool:
        """Whether it has a head, for which the library's class has a loss."""
        return self.kind != "encoder_model" or "For" in self.architecture

    @property
    def takes_types(self) -> bool:
        """Whether each token may say of which of two texts it is."""
        return any(field.name == "type_vocab_size" for field in fields(self.family.config_class))

    @property
    def settings(self) -> dict[str, Any]:
        """What stands in its config.json: what is given, with a rate for every dropout that the family has."""
        names = [field.name for field in fields(self.family.config_class)]
        rates = {name: RATE for name in names if meaning(name) == "dropout"}
        return {**rates, **self.given, "architectures": [self.architecture]}


_LLAMA = {
    "vocab_size": 61, "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 24, "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
_WIDER = {**_LLAMA, "head_dim": 4}
_EXPERTS = {"num_experts_per_tok": 2, "experts_implementation": "eager"}
_BERT = {
    "vocab_size": 61, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 14,
    "max_position_embeddings": 26, "type_vocab_size": 2, "pad_token_id": 0,
}  # fmt: skip
_DISTILBERT = {
    "vocab_size": 61, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 14, "max_position_embeddings": 24,
    "pad_token_id": 0,
}  # fmt: skip
_T5 = {
    "vocab_size": 61, "d_model": 12, "d_kv": 4, "d_ff": 14, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10, "pad_token_id": 0,
    "decoder_start_token_id": 0,
}  # fmt: skip
_BART = {
    "vocab_size": 61, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 14, "decoder_ffn_dim": 10, "max_position_embeddings": 24,
    "pad_token_id": 1, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
_MODERNBERT = {
    "vocab_size": 61, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 14,
    "max_position_embeddings": 24, "local_attention": 16, "norm_bias": True, "pad_token_id": 0,
}  # fmt: skip
_LABELS = {"id2label": {"0": "none", "1": "some", "2": "all"}}
_ENCODERS = (("Bert", _BERT), ("Roberta", _BERT), ("DistilBert", _DISTILBERT), ("ModernBert", _MODERNBERT))

ROWS = (
    Row("GPT2LMHeadModel", "language_model",
        {"vocab_size": 61, "n_positions": 24, "n_embd": 12, "n_layer": 2, "n_head": 3, "pad_token_id": 0}),
    Row("LlamaForCausalLM", "language_model", _WIDER),
    Row("MistralForCausalLM", "language_model", {**_WIDER, "sliding_window": 3}),
    Row("MixtralForCausalLM", "language_model", {**_WIDER, "num_local_experts": 3, **_EXPERTS}),
    Row("Qwen2ForCausalLM", "language_model", {**_LLAMA, "hidden_size": 16}),
    Row("Qwen3ForCausalLM", "language_model", _WIDER),
    Row("Phi3ForCausalLM", "language_model", {**_LLAMA, "hidden_size": 16}),
    Row("Gemma2ForCausalLM", "language_model", {**_WIDER, "sliding_window": 16, "query_pre_attn_scalar": 4}),
    Row("GemmaForCausalLM", "language_model", _WIDER),
    Row("PhiForCausalLM", "language_model", {**_LLAMA, "hidden_size": 16}),
    Row("OPTForCausalLM", "language_model",
        {"vocab_size": 61, "hidden_size": 12, "ffn_dim": 14, "num_hidden_layers": 2, "num_attention_heads": 3,
         "max_position_embeddings": 24, "pad_token_id": 0}),
    Row("GPTNeoXForCausalLM", "language_model",
        {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 14, "num_hidden_layers": 2, "pad_token_id": 0,
         "num_attention_heads": 3, "max_position_embeddings": 24}),
    Row("DeepseekV2ForCausalLM", "language_model",
        {"vocab_size": 61, "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "q_lora_rank": 6,
         "num_attention_heads": 3, "num_key_value_heads": 3, "max_position_embeddings": 24, "kv_lora_rank": 8,
         "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "head_dim": 4, "v_head_dim": 4, "n_routed_experts": 4,
         "moe_intermediate_size": 6, "first_k_dense_replace": 1, "pad_token_id": 0, **_EXPERTS}),
    *(Row(f"{name}ForMaskedLM", "masked_language_model", given) for name, given in _ENCODERS),
    *(Row(f"{name}ForSequenceClassification", "classifier", {**given, **_LABELS}) for name, given in _ENCODERS),
    *(Row(f"{name}ForTokenClassification", "encoder_model", {**given, **_LABELS}) for name, given in _ENCODERS),
    *(Row(f"{name}Model", "encoder_model", given) for name, given in _ENCODERS),
    Row("ViTForImageClassification", "classifier",
        {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 14,
         "image_size": 8, "patch_size": 4, "num_channels": 3, **_LABELS}),
    Row("T5ForConditionalGeneration", "sequence_to_sequence", _T5),
    Row("MT5ForConditionalGeneration", "sequence_to_sequence", _T5),
    Row("BartForConditionalGeneration", "sequence_to_sequence", _BART),
    Row("MarianMTModel", "sequence_to_sequence", _BART),
    Row("WhisperForConditionalGeneration", "language_model",
        {"vocab_size": 61, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 3, "encoder_ffn_dim": 14, "decoder_ffn_dim": 10, "num_mel_bins": 3,
         "max_source_positions": 5, "max_target_positions": 24, "pad_token_id": 0, "decoder_start_token_id": 2,
         "begin_suppress_tokens": None}),
)  # fmt: skip
