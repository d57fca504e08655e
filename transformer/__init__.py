"""The Transformer of the documents, built on minigrad: attention, positions, layers, models, caches, decoding."""

from minigrad.version import __version__ as __version__
from transformer import data
from transformer.attention import GroupedQueryAttention, MultiHeadAttention, SelfAttention, scaled_dot_product
from transformer.auto import AutoModel, AutoTokenizer
from transformer.cache import KVCache
from transformer.decoding import (
    beam_decode,
    beam_search,
    greedy_decode,
    language_model,
    sample_decode,
    sampling_probabilities,
    stream_decode,
    translator,
)
from transformer.feedforward import MLP, FeedForward, SwiGLU
from transformer.layers import DecoderLayer, EncoderLayer
from transformer.masks import causal_mask, causal_padding_mask, padding_mask
from transformer.models import Decoder, DecoderLM, Encoder, EncoderDecoder
from transformer.positions import LearnedPositions, RoPE, SinusoidalPositions
from transformer.quantization import quantize
from transformer.recurrent import LSTM, RNN, RecurrentClassifier, RecurrentSeq2Seq, RecurrentTagger
from transformer.training import shift_targets, smoothed_cross_entropy

__all__ = [
    "LSTM",
    "MLP",
    "RNN",
    "AutoModel",
    "AutoTokenizer",
    "Decoder",
    "DecoderLM",
    "DecoderLayer",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "FeedForward",
    "GroupedQueryAttention",
    "KVCache",
    "LearnedPositions",
    "MultiHeadAttention",
    "RecurrentClassifier",
    "RecurrentSeq2Seq",
    "RecurrentTagger",
    "RoPE",
    "SelfAttention",
    "SinusoidalPositions",
    "SwiGLU",
    "beam_decode",
    "beam_search",
    "causal_mask",
    "causal_padding_mask",
    "data",
    "greedy_decode",
    "language_model",
    "padding_mask",
    "quantize",
    "sample_decode",
    "sampling_probabilities",
    "scaled_dot_product",
    "shift_targets",
    "smoothed_cross_entropy",
    "stream_decode",
    "translator",
]
