"""Whole models: the encoder-decoder of the paper, the decoder-only language model, and published families."""

from transformer.models.bart import Bart, BartConfig, Marian, MarianConfig
from transformer.models.bert import Bert, BertConfig
from transformer.models.decoder_lm import DecoderLM, DecoderLMLayer
from transformer.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from transformer.models.gpt2 import GPT2, GPT2Config
from transformer.models.llama import Llama, LlamaConfig
from transformer.models.mixtral import Mixtral, MixtralConfig
from transformer.models.t5 import T5, T5Config

__all__ = [
    "GPT2",
    "T5",
    "Bart",
    "BartConfig",
    "Bert",
    "BertConfig",
    "Decoder",
    "DecoderLM",
    "DecoderLMLayer",
    "Encoder",
    "EncoderDecoder",
    "GPT2Config",
    "Llama",
    "LlamaConfig",
    "Marian",
    "MarianConfig",
    "Mixtral",
    "MixtralConfig",
    "T5Config",
]
