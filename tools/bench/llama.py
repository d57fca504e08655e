"""A LLaMA of GPT-2 small's size beside llama.cpp: the same random weights in float32, bfloat16 and eight bits.

llama.cpp reads them from a file that the package `gguf` writes, through its Python package `llama-cpp-python`. Its
eight bits are q8_0, one float16 scale for 32 numbers (34 bytes), ours int8 with one float32 scale a row (32 bytes).
Both sides read the same prompt and then their own most probable tokens.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import nn
from minigrad.kernels.threads import get_num_threads
from tools.bench.timing import Result, compare, interleaved
from transformer.decoding import language_model
from transformer.models.llama import Llama, LlamaConfig
from transformer.quantization import quantize

CONFIG = LlamaConfig(
    vocab_size=50257, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
    max_position_embeddings=1024, tie_word_embeddings=False,
)  # fmt: skip
PROMPT, WRITTEN = 512, 64  # tokens
KINDS = (("float32", "F32", 1e-3), ("bfloat16", "BF16", 0.03), ("int8", "Q8_0", 0.05))  # ours, theirs, difference
MISSING = (
    "the LLaMA is compared with llama.cpp, which is not installed: pip install llama-cpp-python gguf (it builds for "
    "ten minutes)"
)
# names in GGUF by ours, without the layer; the rows of queries and keys are turned (see `_turned`)
NAMES = {
    "token_embedding.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "norm1.weight": "attn_norm.weight", "norm2.weight": "ffn_norm.weight",
    **{f"self_attn.{name}_proj.weight": f"attn_{name}.weight" for name in "qkv"},
    "self_attn.out_proj.weight": "attn_output.weight",
    **{f"feed_forward.{name}_proj.weight": f"ffn_{name}.weight" for name in ("gate", "up", "down")},
}  # fmt: skip


def there() -> bool:
    """Are llama.cpp and the writer of its files installed?"""
    try:
        import gguf  # noqa: F401
        import llama_cpp  # noqa: F401
    except ImportError:
        return False
    return True


def weights(config: LlamaConfig) -> dict[str, np.ndarray]:
    """Random weights, always the same, by our names."""
    with nn.init.skipped():
        model = Llama(config)
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(p.shape, np.float32) * np.float32(0.02) + np.float32(p.ndim == 1)
        for name, p in model.named_parameters()
    }


def built(config: LlamaConfig, values: dict[str, np.ndarray]) -> Llama:
    """A LLaMA in whose memory these weights are."""
    with nn.init.skipped():
        model = Llama(config).eval()
    for name, parameter in model.named_parameters():
        parameter.data = mg.from_numpy(values[name])
    return model


def _turned(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in llama.cpp's order: it rotates neighbours, where we rotate halves of a head."""
    return matrix.reshape(heads, 2, -1, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def tensors(config: LlamaConfig, values: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Every weight under the name and in the order that GGUF has for LLaMA."""
    heads = {"self_attn.q_proj.weight": config.num_attention_heads, "self_attn.k_proj.weight": config.kv_heads}
    for name, array in values.items():
        _, number, inner = name.split(".", 2) if name.startswith("layers.") else ("", "", name)
        if inner in heads:
            array = _turned(array, heads[inner])
        yield (f"blk.{number}." if number else "") + NAMES[inner], array


def write(config: LlamaConfig, values: dict[str, np.ndarray], path: Path, kind: str) -> None:
    """The weights as a GGUF file whose matrices are of `kind`, "F32", "BF16" or "Q8_0"."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.d_head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    stored = gguf.GGMLQuantizationType[kind]
    for name, array in tensors(config, values):
        if array.ndim == 2:
            writer.add_tensor(name, gguf.quantize(array, stored), raw_dtype=stored)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@dataclass
class Reader:
    """A model that reads: forget what was read, and read more tokens to the logits of the next one ``(vocab,)``."""

    clear: Callable[[], None]
    read: Callable[[np.ndarray], np.ndarray]


def ours(model: Llama) -> Reader:
    """Our public functions."""
    state: dict[str, Any] = {}

    def clear() -> None:
        state.clear()
        state.update(step=language_model(model, model.new_cache()), ids=np.zeros((1, 0), np.int64))

    def read(ids: np.ndarray) -> np.ndarray:
        state["ids"] = np.concatenate([state["ids"], ids[None]], 1)
        logits: np.ndarray = state["step"](mg.from_numpy(state["ids"])).numpy()[0]
        return logits

    clear()
    return Reader(clear, read)


def theirs(path: Path, config: LlamaConfig, threads: int) -> Reader:
    """llama.cpp on a file, with as many threads."""
    import llama_cpp

    model = llama_cpp.Llama(
        str(path), n_ctx=config.max_position_embeddings, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads,
        n_threads_batch=threads, verbose=False,
    )  # fmt: skip

    def read(ids: np.ndarray) -> np.ndarray:
        model.eval(ids.tolist())
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (config.vocab_size,))

    return Reader(model.reset, read)


def _written(reader: Reader, prompt: np.ndarray, count: int) -> Callable[[], None]:
    """What is timed of decoding: `count` tokens one by one behind a prompt."""

    def run() -> None:
        reader.clear()
        token = int(reader.read(prompt).argmax())
        for _ in range(count):
            token = int(reader.read(np.array([token])).argmax())

    return run


def _read(reader: Reader, prompt: np.ndarray) -> Callable[[], None]:
    """What is timed of a prompt."""

    def run() -> None:
        reader.clear()
        reader.read(prompt)

    return run


def _processor_ms(run: Callable[[], None]) -> float:
    """Milliseconds of all threads, the better of two: another program on the cores adds little to it."""
    best = float("inf")
    for _ in range(2):
        time.sleep(0.1)  # threads that spin after somebody else's work
        begun = time.process_time()
        run()
        best = min(best, (time.process_time() - begun) * 1e3)
    return best


def agree(one: np.ndarray, other: np.ndarray, bound: float) -> None:
    """Raise RuntimeError where logits differ by more than `bound` of the largest."""
    difference = float(np.abs(one - other).max() / np.abs(other).max())
    if not difference <= bound:
        raise RuntimeError(f"the logits of the LLaMA differ from llama.cpp's by {difference:.2g} of the largest")


def run(seconds: float, config: LlamaConfig = CONFIG) -> list[Result]:
    """Decoding and prefill in each precision. Raises RuntimeError where the logits are not the same model's."""
    rng, results, threads = np.random.default_rng(0), [], get_num_threads()
    prompt, values = rng.integers(0, config.vocab_size, PROMPT), weights(config)
    with tempfile.TemporaryDirectory() as folder:
        for kind, stored, bound in KINDS:
            model, path = built(config, values), Path(folder) / f"{stored}.gguf"
            write(config, values, path, stored)
            if kind != "float32":
                quantize(model, kind)
            readers = {"ours": ours(model), f"llama.cpp {stored}": theirs(path, config, threads)}
            first, second = (reader.read(prompt[:16]).copy() for reader in readers.values())
            agree(first, second, bound)
            for job, count, runs in (
                (f"decode llama {kind}", WRITTEN, {k: _written(r, prompt[:1], WRITTEN) for k, r in readers.items()}),
                (f"prefill llama {kind}", 1, {k: _read(r, prompt) for k, r in readers.items()}),
            ):
                times = interleaved(runs, seconds, least=3)
                one, other = (_processor_ms(each) / count for each in runs.values())
                notes = f"processor time {one:.1f} ms, theirs {other:.1f}" + (" a token" if count > 1 else "")
                times = {key: [each / count for each in every] for key, every in times.items()}
                results += compare(job, times, notes=notes)
            del readers, runs, model
            gc.collect()
            path.unlink()
    return results
