"""Which op has a kernel on the device, for which dtypes of its first input. Imports nothing: see `minigrad.kernels`."""

from __future__ import annotations

_HALVES = ("float16", "bfloat16")
_FLOATS = ("float32", *_HALVES)
_DOUBLES = (*_FLOATS, "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
_NUMBERS = (*_DOUBLES, *_INTEGERS)
_ALL = (*_NUMBERS, "bool")

# module -> ((ops, dtypes), ...)
_SERVED: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "elementwise": (
        ("eq ne lt le gt ge clone cast flip isnan isinf isfinite add mul maximum minimum", _ALL),
        ("sub neg abs sign floor ceil round square relu floor_divide remainder pow", _NUMBERS),
        ("div exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos tanh sigmoid erf", _DOUBLES),
        ("silu softplus leaky_relu", _DOUBLES),
        ("bernoulli", ("float32", "float64")),
        ("gelu gelu_tanh", _FLOATS),
        ("bitwise_and bitwise_or bitwise_xor bitwise_not", (*_INTEGERS, "bool")),
        ("where", ("bool",)),
        ("fused", ("float32", "bool")),
    ),
    "reductions": (
        ("sum prod amax amin argmax argmin cumsum", _ALL),
        ("norm", _DOUBLES),
    ),
    "softmax": (("softmax log_softmax softmax_grad", ("float32",)),),
    "norms": (("layer_norm layer_norm_grad rms_norm rms_norm_grad", ("float32",)),),
    "cross_entropy": (("cross_entropy cross_entropy_grad", ("float32",)),),
    "index": (
        ("embedding embedding_grad take put put_add gather scatter scatter_add_zeros", _ALL),
        ("within", _INTEGERS),
    ),
    "joins": (("cat join slice_add strided_scatter strided_add tril triu", _ALL),),
    "random": (("random_uniform", ("int64",)),),
    "dropout": (("dropout", _FLOATS),),
    "rotary": (("rope", _FLOATS),),
    "adam": (("adam", ("float32",)),),
    "halves": (
        ("softmax log_softmax softmax_grad layer_norm layer_norm_grad rms_norm rms_norm_grad", _HALVES),
        ("cross_entropy cross_entropy_grad attention attention_grad", _HALVES),
        ("linear_cross_entropy linear_cross_entropy_grad adam", _HALVES),
    ),
    "products": (("matmul", _FLOATS),),
    "epilogue": (("fused_matmul", ("float32",)),),
    "projection": (("linear_cross_entropy linear_cross_entropy_grad", ("float32",)),),
    "attention": (("attention attention_grad", ("float32",)), ("flash_attention flash_attention_grad", _FLOATS)),
}

FAST: dict[tuple[str, str, str], str] = {
    (op, "cuda", dtype): f"minigrad.kernels.cuda.{module}:{op}"
    for module, families in _SERVED.items()
    for ops, dtypes in families
    for op in ops.split()
    for dtype in dtypes
}
