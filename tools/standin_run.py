"""One run of `tools.standin`: `python -m tools.standin_run SIDE PROGRAM WEIGHTS RESULT [NAME...]`.

SIDE is torch or minigrad.torch. Runs PROGRAM as __main__, writes (torch) or loads (minigrad.torch) the weights of its
modules in the folder WEIGHTS, calls the definitions NAME on small inputs, and pickles what it saw into RESULT.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

# Required parameters of the documents' classes and functions, by name: sizes, and shapes of random inputs.
SIZES = {"d_model": 12, "num_heads": 3, "n_heads": 3, "n_kv_heads": 1, "d_ff": 20, "seq_len": 5, "num_classes": 6}
SIZES |= {"target": 2, "vocab_size": 11, "dim": 12}
INPUTS = dict.fromkeys(("x", "X", "Q", "K", "V", "query", "key", "value", "decoder_hidden"), (2, 5, 12))
INPUTS |= dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), (12, 12)) | {"encoder_output": (2, 7, 12), "mask": (5, 5)}


def share_draws(torch: Any) -> None:
    """Draw random data and dropout masks by numpy, so that both sides see the same."""
    stream = [np.random.default_rng(0)]

    def seed(value: int) -> None:
        stream[0] = np.random.default_rng(value)

    def made(array: Any, keywords: dict[str, Any], dtype: Any) -> Any:
        tensor = torch.tensor(np.asarray(array)).to(keywords.get("dtype") or dtype)
        return tensor.requires_grad_() if keywords.get("requires_grad") else tensor

    def shape(size: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple | list) else size

    def randint(low: int, high: Any = None, size: Any = None, **keywords: Any) -> Any:
        if size is None:
            low, high, size = 0, low, high
        return made(stream[0].integers(low, high, tuple(size)), keywords, torch.int64)

    def multinomial(weights: Any, num_samples: int, replacement: bool = False, **_: Any) -> Any:
        rows = np.asarray(weights.detach().numpy(), np.float64)
        flat = rows.reshape(-1, rows.shape[-1])
        drawn = [stream[0].choice(len(row), num_samples, replacement, row / row.sum()) for row in flat]
        return torch.tensor(np.stack(drawn).reshape(*rows.shape[:-1], num_samples))

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or not p:
            return input
        keep = (stream[0].random(tuple(input.shape)) >= p) / (1.0 - p)
        return input * torch.tensor(keep).to(input.dtype)

    def order(sampler: Any) -> Iterator[int]:
        count = len(sampler.data_source)
        if sampler.replacement:
            return (int(stream[0].integers(count)) for _ in range(sampler.num_samples))
        return iter(stream[0].permutation(count)[: sampler.num_samples].tolist())

    torch.manual_seed = seed
    torch.utils.data.RandomSampler.__iter__ = order
    torch.randn = lambda *size, **k: made(stream[0].standard_normal(shape(size)), k, torch.float32)
    torch.rand = lambda *size, **k: made(stream[0].random(shape(size)), k, torch.float32)
    torch.randn_like = lambda x, **k: made(stream[0].standard_normal(tuple(x.shape)), k, x.dtype)
    torch.rand_like = lambda x, **k: made(stream[0].random(tuple(x.shape)), k, x.dtype)
    torch.randperm = lambda n, **k: made(stream[0].permutation(n), k, torch.int64)
    torch.randint, torch.multinomial, torch.nn.functional.dropout = randint, multinomial, dropout


def share_clock() -> None:
    """Time goes a second further whenever the program looks; libraries see the true one."""

    def shared(true: Any, ticks: Iterator[int]) -> Any:
        return lambda: float(next(ticks)) if sys._getframe(1).f_globals.get("__name__") == "__main__" else true()

    for name in ("time", "perf_counter", "monotonic"):
        setattr(time, name, shared(getattr(time, name), itertools.count()))


class Recorder:
    """Shares the weights of every module when it is first called, and keeps what the outermost calls return."""

    def __init__(self, torch: Any, weights: Path, writes: bool) -> None:
        self.torch, self.weights, self.writes = torch, weights, writes
        self.outputs: list[tuple[str, np.ndarray]] = []
        self.known: dict[int, Any] = {}  # the modules themselves, too: an id must not come again
        self.files = itertools.count()
        self.depth = 0

    def install(self) -> None:
        """Wrap the call of modules."""
        call = self.torch.nn.Module.__call__

        def recorded(module: Any, *args: Any, **keywords: Any) -> Any:
            if not self.depth and id(module) not in self.known:
                self.share(module)
            self.depth += 1
            try:
                result = call(module, *args, **keywords)
            finally:
                self.depth -= 1
            if not self.depth:
                self.keep(type(module).__name__, result)
            return result

        self.torch.nn.Module.__call__ = recorded

    def share(self, module: Any) -> None:
        """Write the state dict to the next file, or load it from there."""
        self.known.update((id(part), part) for part in module.modules())
        file = self.weights / f"weights{next(self.files)}.npz"
        if self.writes:
            np.savez(file, **{name: tensor.detach().numpy() for name, tensor in module.state_dict().items()})
        else:
            module.load_state_dict({name: self.torch.tensor(array) for name, array in np.load(file).items()})

    def keep(self, name: str, value: Any) -> None:
        """Record every tensor in a result."""
        if isinstance(value, self.torch.Tensor):
            self.outputs.append((name, np.array(value.detach().numpy())))
        elif isinstance(value, tuple | list):
            for i, part in enumerate(value):
                self.keep(f"{name}[{i}]", part)


def drive(name: str, namespace: dict[str, Any], torch: Any, recorder: Recorder) -> None:
    """Call a class or function whose required parameters SIZES and INPUTS know; differentiate what it returns.

    A class is made, run in evaluation mode, and differentiated with respect to its parameters and inputs.
    """
    function = namespace[name]
    if isinstance(function, type):
        if not issubclass(function, torch.nn.Module) or not (sizes := _arguments(function, torch)):
            return
        function = function(**sizes).eval()
        signature = function.forward
    else:
        signature = function
    if not (arguments := _arguments(signature, torch)):
        return
    result = function(**arguments)
    if signature is function:  # modules record their own
        recorder.keep(name, result)
    _differentiate(name, function, arguments, result, torch, recorder)


def _arguments(function: Any, torch: Any) -> dict[str, Any] | None:
    """Values for the required parameters; None where one is unknown."""
    required = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if not set(required) <= set(SIZES) | set(INPUTS):
        return None
    return {name: SIZES[name] if name in SIZES else _input(name, torch) for name in required}


def _input(name: str, torch: Any) -> Any:
    if name == "mask":
        return torch.tril(torch.ones(*INPUTS[name]))
    return torch.randn(*INPUTS[name]).requires_grad_()


def _differentiate(name: str, function: Any, arguments: Any, result: Any, torch: Any, recorder: Recorder) -> None:
    first = result[0] if isinstance(result, tuple) else result
    if not isinstance(first, torch.Tensor) or not first.requires_grad:
        return
    (first * torch.randn(*first.shape)).sum().backward()
    wanted = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    if isinstance(function, torch.nn.Module):
        wanted |= dict(function.named_parameters())
    for key, tensor in wanted.items():
        if tensor.grad is not None:
            recorder.keep(f"{name}: gradient of {key}", tensor.grad)


@contextlib.contextmanager
def _described(result: dict[str, Any]) -> Iterator[None]:
    """Record an error's first line instead of raising it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        result["errors"].append(f"{type(error).__name__}: {error}".splitlines()[0])


def main() -> None:
    side, program, weights, target, *names = sys.argv[1:]
    if side == "minigrad.torch":
        import minigrad.torch

        minigrad.torch.install()
    import torch

    torch.__version__ = "2.0"  # programs print it
    share_draws(torch)
    share_clock()
    recorder = Recorder(torch, Path(weights), writes=side == "torch")
    recorder.install()
    result: dict[str, Any] = {"errors": [], "outputs": recorder.outputs}
    module = ModuleType("__main__")
    module.__file__ = program
    sys.modules["__main__"] = module
    with contextlib.redirect_stdout(io.StringIO()) as text, _described(result):
        exec(compile(Path(program).read_text(encoding="utf-8"), program, "exec"), module.__dict__)
    for name in names:
        if name in module.__dict__:  # a statement before it may have failed
            with _described(result):
                drive(name, module.__dict__, torch, recorder)
    result["text"] = text.getvalue()
    with open(target, "wb") as stream:
        pickle.dump(result, stream)


if __name__ == "__main__":
    main()
