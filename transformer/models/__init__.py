"""Whole models: the encoder-decoder of the paper and the decoder-only language model."""

from transformer.models.decoder_lm import DecoderLM, DecoderLMLayer
from transformer.models.encoder_decoder import Decoder, Encoder, EncoderDecoder

__all__ = ["Decoder", "DecoderLM", "DecoderLMLayer", "Encoder", "EncoderDecoder"]
