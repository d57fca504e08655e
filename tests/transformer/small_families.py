"""A small model of each published family, made here, with random weights in float64."""

from __future__ import annotations

import numpy as np

import minigrad as mg
from transformer.models.bart import Bart, BartConfig
from transformer.models.bert import Bert, BertConfig
from transformer.models.deepseek_v2 import DeepseekV2, DeepseekV2Config
from transformer.models.distilbert import DistilBert, DistilBertConfig
from transformer.models.gemma import Gemma, GemmaConfig
from transformer.models.gemma2 import Gemma2, Gemma2Config
from transformer.models.gpt2 import GPT2, GPT2Config
from transformer.models.gpt_neox import GPTNeoX, GPTNeoXConfig
from transformer.models.llama import Llama, LlamaConfig
from transformer.models.marian import Marian, MarianConfig
from transformer.models.mistral import Mistral, MistralConfig
from transformer.models.mixtral import Mixtral, MixtralConfig
from transformer.models.modernbert import ModernBert, ModernBertConfig
from transformer.models.mt5 import MT5, MT5Config
from transformer.models.opt import OPT, OPTConfig
from transformer.models.phi import Phi, PhiConfig
from transformer.models.phi3 import Phi3, Phi3Config
from transformer.models.qwen import Qwen2, Qwen2Config, Qwen3, Qwen3Config
from transformer.models.roberta import Roberta, RobertaConfig
from transformer.models.t5 import T5, T5Config

_ROTARY = {
    "vocab_size": 19, "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 24,
}  # fmt: skip
_SEQ2SEQ = {
    "vocab_size": 19, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 14, "decoder_ffn_dim": 10, "max_position_embeddings": 24,
    "pad_token_id": 1,
}  # fmt: skip
_T5 = {
    "vocab_size": 19, "d_model": 11, "d_kv": 4, "d_ff": 14, "num_layers": 1, "num_decoder_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
}  # fmt: skip

MAKE = {
    "gpt2": lambda: GPT2(GPT2Config(vocab_size=19, n_positions=24, n_embd=12, n_layer=2, n_head=3)),
    "llama": lambda: Llama(LlamaConfig(**_ROTARY)),
    "mixtral": lambda: Mixtral(MixtralConfig(**_ROTARY, num_local_experts=4, sliding_window=4)),
    "mistral": lambda: Mistral(MistralConfig(**_ROTARY, sliding_window=5)),
    "qwen2": lambda: Qwen2(Qwen2Config(**_ROTARY, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen3": lambda: Qwen3(Qwen3Config(**_ROTARY)),
    "phi3": lambda: Phi3(Phi3Config(**_ROTARY, pad_token_id=0)),
    "gemma": lambda: Gemma(GemmaConfig(**_ROTARY)),
    "gemma2": lambda: Gemma2(Gemma2Config(**_ROTARY, sliding_window=4, query_pre_attn_scalar=5)),
    "phi": lambda: Phi(
        PhiConfig(
            vocab_size=19, hidden_size=24, intermediate_size=14, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=24, qk_layernorm=True,
        )
    ),
    "opt": lambda: OPT(
        OPTConfig(
            vocab_size=19, hidden_size=12, ffn_dim=14, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=24, word_embed_proj_dim=8, pad_token_id=0,
        )
    ),
    "gpt_neox": lambda: GPTNeoX(
        GPTNeoXConfig(
            vocab_size=19, hidden_size=24, intermediate_size=14, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=24,
        )
    ),
    "deepseek_v2": lambda: DeepseekV2(
        DeepseekV2Config(
            vocab_size=19, hidden_size=12, intermediate_size=14, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=24, q_lora_rank=5, kv_lora_rank=7, qk_nope_head_dim=5, qk_rope_head_dim=4,
            v_head_dim=3, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6, first_k_dense_replace=1,
        )
    ),
    "mt5": lambda: MT5(MT5Config(**_T5)),
    "bert": lambda: Bert(
        BertConfig(
            vocab_size=19, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=14,
            max_position_embeddings=24,
        )
    ),
    "roberta": lambda: Roberta(
        RobertaConfig(
            vocab_size=19, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=14,
            max_position_embeddings=26,
        )
    ),
    "distilbert": lambda: DistilBert(
        DistilBertConfig(vocab_size=19, dim=12, n_layers=2, n_heads=3, hidden_dim=14, max_position_embeddings=24)
    ),
    "modernbert": lambda: ModernBert(
        ModernBertConfig(
            vocab_size=19, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=14,
            max_position_embeddings=24, local_attention=4, pad_token_id=0,
        )
    ),
    "t5": lambda: T5(T5Config(**_T5)),
    "t5-gated": lambda: T5(T5Config(**_T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "bart": lambda: Bart(BartConfig(**_SEQ2SEQ)),
    "marian": lambda: Marian(MarianConfig(**_SEQ2SEQ, scale_embedding=True)),
}  # fmt: skip
DECODERS = ("gpt2", "llama", "mixtral", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "phi", "opt",
            "gpt_neox", "deepseek_v2")  # fmt: skip
SEQ2SEQ = ("t5", "t5-gated", "mt5", "bart", "marian")


def small(family):
    """The model in evaluation mode; weights far from their small starting values, so that attention is not uniform."""
    model = MAKE[family]().double().eval()
    rng = np.random.default_rng(3)
    with mg.no_grad():
        for parameter in model.parameters():
            centre = 1.0 if parameter.ndim == 1 else 0.0
            spread = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.2
            parameter.copy_(mg.tensor(centre + spread * rng.standard_normal(parameter.shape)))
    return model
