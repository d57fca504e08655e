"""Whole models: the encoder-decoder of the paper, the decoder-only language model, and published families."""

from transformer.models.bart import Bart, BartConfig
from transformer.models.bert import Bert, BertConfig
from transformer.models.decoder_lm import DecoderLM, DecoderLMLayer
from transformer.models.deepseek_v2 import DeepseekV2, DeepseekV2Config
from transformer.models.distilbert import DistilBert, DistilBertConfig
from transformer.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
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
from transformer.models.vit import ViT, ViTConfig
from transformer.models.whisper import Whisper, WhisperConfig

__all__ = [
    "GPT2",
    "MT5",
    "OPT",
    "T5",
    "Bart",
    "BartConfig",
    "Bert",
    "BertConfig",
    "Decoder",
    "DecoderLM",
    "DecoderLMLayer",
    "DeepseekV2",
    "DeepseekV2Config",
    "DistilBert",
    "DistilBertConfig",
    "Encoder",
    "EncoderDecoder",
    "GPT2Config",
    "GPTNeoX",
    "GPTNeoXConfig",
    "Gemma",
    "Gemma2",
    "Gemma2Config",
    "GemmaConfig",
    "Llama",
    "LlamaConfig",
    "MT5Config",
    "Marian",
    "MarianConfig",
    "Mistral",
    "MistralConfig",
    "Mixtral",
    "MixtralConfig",
    "ModernBert",
    "ModernBertConfig",
    "OPTConfig",
    "Phi",
    "Phi3",
    "Phi3Config",
    "PhiConfig",
    "Qwen2",
    "Qwen2Config",
    "Qwen3",
    "Qwen3Config",
    "Roberta",
    "RobertaConfig",
    "T5Config",
    "ViT",
    "ViTConfig",
    "Whisper",
    "WhisperConfig",
]
