"""Everything that kernels say in PTX, which Python has no word for; each with an emulation that the simulator runs.

Memory goes with its index as two arguments (`memory, i`: flat shared memory or a pointer). Registers that hold packed
halves or tf32 patterns are int32 "bits".

    load4 store4 load2 store2         64 and 128 bits of float32 at once (aligned to as much)
    load_bits load_bits4 store_bits   32 or 128 bits of uint16 memory: two or eight halves
    copy_async16 copy_async4          global to shared memory without registers; what is cut off is filled with zeros
    copy_async_commit COPY_ASYNC_WAIT[n]   close a group of copies; wait until at most n groups are under way
    ldmatrix ldmatrix_transposed      four 8 x 8 matrices of halves (or 8 x 4 of 32 bits) into the registers of a warp
    mma_tf32 mma_bfloat16 mma_float16 D = A B + C on tensor cores: (16 x 8)(8 x 8) tf32, (16 x 16)(16 x 8) halves
    to_tf32 float_bits bits_float exp2 pack_* widen_*   numbers and their patterns

Fragments, with g = lane // 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k8" and "m16n8k16"):

    C    c0 (g, 2t)   c1 (g, 2t+1)   c2 (g+8, 2t)   c3 (g+8, 2t+1)
    tf32    A   a0 (g, t)  a1 (g+8, t)  a2 (g, t+4)  a3 (g+8, t+4)                       B   b0 (t, g)  b1 (t+4, g)
    halves  A   a0 (g, 2t..)  a1 (g+8, 2t..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)    B   b0 (2t.., g)  b1 (2t+8.., g)

Nothing is imported from a CUDA package until the compiler asks for the type of an intrinsic (`_numba_type_`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

Lanes = Mapping[int, tuple[Any, ...]]

# Kinds of operands, as the text below spells them. `shared` and `global` take two arguments, memory and index.
#   b32 32 bits in an int32    f32 a float32    h16 a uint16    shared global an address
_CONSTRAINTS = {"b32": "r", "f32": "f", "h16": "h", "shared": "r", "global": "l"}


class Intrinsic:
    """An operation of the device. In kernels it is called by its name; here it only carries what it means.

    text        PTX with $0, $1, ... for results and then operands (see `_asm`), or a function that builds LLVM IR
    results     kinds of the results; several come back as a tuple
    operands    kinds of the operands
    emulate     (the lanes' arguments) -> the lanes' results, of one that a warp executes together
    emulate_thread  the same of one that every thread executes by itself
    effect      it does more than compute its results (memory, order): never moved or dropped
    convergent  it must not be made to depend on more conditions: a loop around it is not unrolled by guesses
    """

    def __init__(
        self,
        name: str,
        text: str | Callable[..., Any],
        results: str = "",
        operands: str = "",
        *,
        emulate: Callable[[Lanes], Any] | None = None,
        emulate_thread: Callable[..., Any] | None = None,
        effect: bool = False,
        convergent: bool = False,
    ) -> None:
        self.__name__ = name
        self.text, self.effect, self.convergent = text, effect, convergent
        self.results, self.operands = results.split(), operands.split()
        self.emulate, self.emulate_thread = emulate, emulate_thread

    def __call__(self, *arguments: Any) -> Any:
        """Kernels only: raises RuntimeError."""
        raise RuntimeError(f"{self.__name__} has no meaning outside of a kernel that is compiled or simulated")

    def __repr__(self) -> str:
        return f"<intrinsic {self.__name__}>"

    @cached_property
    def _numba_type_(self) -> Any:
        """What numba takes this object for when a kernel names it."""
        from numba.cuda import types
        from numba.cuda.typing.templates import infer, make_intrinsic_template

        template = make_intrinsic_template(self, self._definition(), self.__name__)
        infer(template)
        return types.Function(template)

    def _definition(self) -> Callable[..., Any]:
        """The typing function that numba's intrinsics are made of: (context, types) -> signature, code generator."""
        from numba.cuda import types

        numbers = {"b32": types.int32, "f32": types.float32, "h16": types.uint16}
        kinds = [numbers[kind] for kind in self.results]
        if not kinds:
            result: Any = types.void
        else:
            result = kinds[0] if len(kinds) == 1 else types.UniTuple(kinds[0], len(kinds))

        def typed(context: Any, *arguments: Any) -> Any:
            given = list(arguments)
            taken: list[Any] = []
            for kind in self.operands:
                if kind in numbers:
                    given.pop(0)
                    taken.append(numbers[kind])
                else:
                    taken += [given.pop(0), types.intp]
                    given.pop(0)
            return result(*taken), self._generate

        count = sum(1 if kind in numbers else 2 for kind in self.operands)
        names = ", ".join(f"x{i}" for i in range(count))
        scope: dict[str, Any] = {"typed": typed}
        exec(f"def definition(context{', ' if names else ''}{names}):\n    return typed(context, {names})", scope)
        return scope["definition"]

    def _generate(self, context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
        from llvmlite import ir
        from numba.cuda import cgutils

        types, rest = list(signature.args), list(arguments)
        operands = []
        for kind in self.operands:
            value, type_ = rest.pop(0), types.pop(0)
            if kind in ("shared", "global"):
                address = _address(context, builder, type_, value, rest.pop(0))
                types.pop(0)
                if callable(self.text):
                    value = address
                elif kind == "shared":
                    value = builder.ptrtoint(
                        builder.addrspacecast(address, ir.PointerType(address.type.pointee, 3)), ir.IntType(32)
                    )
                else:
                    value = builder.ptrtoint(address, ir.IntType(64))
            operands.append(value)
        made = self.text(builder, *operands) if callable(self.text) else self._asm(builder, operands)
        if not self.results:
            return context.get_dummy_value()
        return made[0] if len(made) == 1 else cgutils.pack_array(builder, made)

    def _asm(self, builder: Any, operands: Sequence[Any]) -> list[Any]:
        from llvmlite import ir

        kinds = {"b32": ir.IntType(32), "f32": ir.FloatType(), "h16": ir.IntType(16)}
        results = [kinds[kind] for kind in self.results]
        if not results:
            returned: Any = ir.VoidType()
        else:
            returned = results[0] if len(results) == 1 else ir.LiteralStructType(results)
        constraints = ["=" + _CONSTRAINTS[kind] for kind in self.results]
        constraints += [_CONSTRAINTS[kind] for kind in self.operands]
        if self.effect:
            constraints.append("~{memory}")
        function = ir.FunctionType(returned, [operand.type for operand in operands])
        code = ir.InlineAsm(function, self.text, ",".join(constraints), side_effect=self.effect)
        value = builder.call(code, operands, attrs=("convergent",) if self.convergent else ())
        if len(results) < 2:
            return [value]
        return [builder.extract_value(value, i) for i in range(len(results))]


def _address(context: Any, builder: Any, type_: Any, value: Any, index: Any) -> Any:
    """The address of an element of flat memory: a one-dimensional array or a pointer."""
    from numba.cuda import types

    if isinstance(type_, types.Array):
        if type_.ndim != 1:
            raise TypeError(f"an intrinsic takes flat memory, not {type_.ndim} dimensions")
        value = context.make_array(type_)(context, builder, value=value).data
    return builder.gep(value, [index])


# --- loads and stores of several elements ---------------------------------------------------------------


def _vector_load(kind: str, count: int, align: int) -> Callable[..., Any]:
    def build(builder: Any, address: Any) -> list[Any]:
        from llvmlite import ir

        one = ir.FloatType() if kind == "f32" else ir.IntType(32)
        vector = one if count == 1 else ir.VectorType(one, count)
        value = builder.load(builder.bitcast(address, vector.as_pointer(address.type.addrspace)))
        value.align = align
        if count == 1:
            return [value]
        return [builder.extract_element(value, ir.Constant(ir.IntType(32), i)) for i in range(count)]

    return build


def _vector_store(builder: Any, address: Any, *values: Any) -> None:
    from llvmlite import ir

    vector = values[0].type if len(values) == 1 else ir.VectorType(values[0].type, len(values))
    whole = values[0]
    if len(values) > 1:
        whole = ir.Constant(vector, ir.Undefined)
        for i, value in enumerate(values):
            whole = builder.insert_element(whole, value, ir.Constant(ir.IntType(32), i))
    builder.store(whole, builder.bitcast(address, vector.as_pointer(address.type.addrspace))).align = 4 * len(values)


def _aligned(memory: Any, index: Any, size: int) -> None:
    """Raises ValueError where an address is not a multiple of `size` bytes: the device would fault."""
    if memory.address(index) % size:
        raise ValueError(f"{memory.name}[{index}] is not aligned to {size} bytes")


def _load_floats(count: int) -> Callable[..., Any]:
    def load(memory: Any, index: Any) -> Any:
        _aligned(memory, index, 4 * count)
        return tuple(memory[index : index + count])

    return load


def _store_floats(memory: Any, index: Any, *values: Any) -> None:
    _aligned(memory, index, 4 * len(values))
    memory[index : index + len(values)] = values


def _load_bits(count: int) -> Callable[..., Any]:
    def load(memory: Any, index: Any) -> Any:
        _aligned(memory, index, 4 * count)
        words = memory[index : index + 2 * count].view(np.int32).tolist()
        return words[0] if count == 1 else tuple(words)

    return load


def _store_bits(memory: Any, index: Any, bits: Any) -> None:
    _aligned(memory, index, 4)
    memory[index : index + 2] = np.array([bits], np.int32).view(np.uint16)


load4 = Intrinsic("load4", _vector_load("f32", 4, 16), "f32 " * 4, "global", emulate_thread=_load_floats(4))
load2 = Intrinsic("load2", _vector_load("f32", 2, 8), "f32 " * 2, "global", emulate_thread=_load_floats(2))
store4 = Intrinsic("store4", _vector_store, "", "global" + " f32" * 4, emulate_thread=_store_floats, effect=True)
store2 = Intrinsic("store2", _vector_store, "", "global" + " f32" * 2, emulate_thread=_store_floats, effect=True)
load_bits = Intrinsic("load_bits", _vector_load("b32", 1, 4), "b32", "global", emulate_thread=_load_bits(1))
load_bits4 = Intrinsic("load_bits4", _vector_load("b32", 4, 16), "b32 " * 4, "global", emulate_thread=_load_bits(4))
store_bits = Intrinsic("store_bits", _vector_store, "", "global b32", emulate_thread=_store_bits, effect=True)


# --- asynchronous copies --------------------------------------------------------------------------------
# A copy may be carried out at any moment between its issue and the wait for its group. The emulation reads the source
# and fills the target with poison at the issue, and writes it at the wait: whoever reads too early, reads NaN.


def _copies() -> list[list[Any]]:
    """The groups of copies that the running thread has under way, the last one open."""
    from minigrad.simt import this_thread  # the simulator needs greenlet, kernels do not

    return this_thread().state.setdefault("copies", [[]])


def _copy_async(size: int) -> Callable[..., None]:
    def copy(target: Any, to: Any, source: Any, start: Any, count: Any) -> None:
        width = size // target.dtype.itemsize
        _aligned(target, to, size)
        if count < 0 or count > width:
            raise ValueError(f"a copy of {size} bytes takes 0 to {width} elements, not {count}")
        values = np.zeros(width, target.dtype)
        if count:
            _aligned(source, start, size)
            values[:count] = source[start : start + count]
        target[to : to + width] = np.full(size, 0xFF, np.uint8).view(target.dtype)
        _copies()[-1].append((target, to, values))

    return copy


def _commit() -> None:
    _copies().append([])


def _wait(most: int) -> Callable[[], None]:
    def wait() -> None:
        groups = _copies()
        while len(groups) - 1 > most:
            for target, to, values in groups.pop(0):
                target[to : to + len(values)] = values

    return wait


copy_async16_float32 = Intrinsic(
    "copy_async16_float32",
    "{ .reg .b32 n; shl.b32 n, $2, 2; cp.async.cg.shared.global [$0], [$1], 16, n; }",
    "",
    "shared global b32",
    emulate_thread=_copy_async(16),
    effect=True,
)
"""(target, i, source, j, count): four float32, of which the last 4 - count are zeros and not read."""
copy_async4_float32 = Intrinsic(
    "copy_async4_float32",
    "{ .reg .b32 n; shl.b32 n, $2, 2; cp.async.ca.shared.global [$0], [$1], 4, n; }",
    "",
    "shared global b32",
    emulate_thread=_copy_async(4),
    effect=True,
)
"""(target, i, source, j, count): one float32, or zero where count is 0."""
copy_async16_half = Intrinsic(
    "copy_async16_half",
    "{ .reg .b32 n; shl.b32 n, $2, 1; cp.async.cg.shared.global [$0], [$1], 16, n; }",
    "",
    "shared global b32",
    emulate_thread=_copy_async(16),
    effect=True,
)
"""(target, i, source, j, count): eight halves, of which the last 8 - count are zeros and not read."""
copy_async_commit = Intrinsic("copy_async_commit", "cp.async.commit_group;", emulate_thread=_commit, effect=True)
COPY_ASYNC_WAIT = tuple(
    Intrinsic(f"copy_async_wait{n}", f"cp.async.wait_group {n};", emulate_thread=_wait(n), effect=True)
    for n in range(4)
)


# --- matrices in the registers of a warp ----------------------------------------------------------------


def _ldmatrix(transposed: bool) -> Callable[[Lanes], Any]:
    def load(lanes: Lanes) -> Any:
        found = []
        for first in range(0, 32, 8):
            rows = []
            for memory, index in (lanes[first + row] for row in range(8)):
                _aligned(memory, index, 16)
                rows.append(memory[index : index + 16 // memory.dtype.itemsize].view(np.uint16))
            matrix = np.stack(rows)
            found.append(np.ascontiguousarray(matrix.T if transposed else matrix).view(np.int32).reshape(32).tolist())
        return {lane: tuple(matrix[lane] for matrix in found) for lane in lanes}

    return load


ldmatrix = Intrinsic(
    "ldmatrix",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
    "b32 " * 4,
    "shared",
    emulate=_ldmatrix(False),
    effect=True,
)
"""Lanes 8i to 8i + 7 name the rows (16 bytes each) of matrix i; every lane gets 32 bits of each: row g, its t-th."""
ldmatrix_transposed = Intrinsic(
    "ldmatrix_transposed",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];",
    "b32 " * 4,
    "shared",
    emulate=_ldmatrix(True),
    effect=True,
)
"""The same of the matrices' transposes (halves only): every lane gets elements (2t, g) and (2t + 1, g)."""

_GROUP, _PLACE = np.divmod(np.arange(32), 4)
_C_ROWS = np.stack([_GROUP, _GROUP, _GROUP + 8, _GROUP + 8], 1)
_C_COLUMNS = np.stack([2 * _PLACE, 2 * _PLACE + 1] * 2, 1)


def truncated(x: np.ndarray) -> np.ndarray:
    """float64 to float32 towards zero: how tensor cores round their sums."""
    nearest = x.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(x), np.nextafter(nearest, np.float32(0)), nearest)


def _mma(rows: Any, columns: Any, unpack: Callable[[np.ndarray], np.ndarray], depth: int) -> Callable[[Lanes], Any]:
    """rows (4 registers) and columns (2) say at which k a lane's registers begin."""
    width = depth // 8  # elements a register

    def multiply(lanes: Lanes) -> Any:
        given = [lanes[lane] for lane in range(32)]
        bits = np.array([lane[:6] for lane in given], np.int64).astype(np.int32)
        values = unpack(bits)  # (32 lanes, 6 registers, width)
        a, b, c = np.zeros((16, depth)), np.zeros((depth, 8)), np.zeros((16, 8))
        for i in range(4):
            for j in range(width):
                a[_GROUP + 8 * (i % 2), rows[i] + j] = values[:, i, j]
        for i in range(2):
            for j in range(width):
                b[columns[i] + j, _GROUP] = values[:, 4 + i, j]
        c[_C_ROWS, _C_COLUMNS] = np.array([lane[6:] for lane in given], np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            d = truncated(a @ b + c)[_C_ROWS, _C_COLUMNS]
        return {lane: tuple(d[lane]) for lane in lanes}

    return multiply


def _tf32_values(bits: np.ndarray) -> np.ndarray:
    """The low 13 bits are not read by the hardware."""
    return (bits & -0x2000).view(np.float32)[..., None].astype(np.float64)


def _half_values(bits: np.ndarray, kind: str) -> np.ndarray:
    words = np.ascontiguousarray(bits).view(np.uint16).reshape(*bits.shape, 2)
    return half_values(words, kind).astype(np.float64)


def half_values(words: np.ndarray, kind: str) -> np.ndarray:
    """float32 of the patterns of bfloat16 or float16."""
    if kind == "float16":
        return words.view(np.float16).astype(np.float32)
    return (words.astype(np.uint32) << 16).view(np.float32)


def half_words(values: np.ndarray, kind: str) -> np.ndarray:
    """The patterns (uint16) of float32 rounded to the nearest bfloat16 or float16."""
    if kind == "float16":
        return np.asarray(values, np.float32).astype(np.float16).view(np.uint16)
    import ml_dtypes

    return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)


def _mma_intrinsic(name: str, shape: str, kind: str, emulate: Callable[[Lanes], Any]) -> Intrinsic:
    text = (
        f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )
    return Intrinsic(name, text, "f32 " * 4, "b32 " * 6 + "f32 " * 4, emulate=emulate)


mma_tf32 = _mma_intrinsic(
    "mma_tf32",
    "m16n8k8",
    "tf32",
    _mma([_PLACE, _PLACE, _PLACE + 4, _PLACE + 4], [_PLACE, _PLACE + 4], _tf32_values, 8),
)
_HALF_ROWS, _HALF_COLUMNS = [2 * _PLACE, 2 * _PLACE, 2 * _PLACE + 8, 2 * _PLACE + 8], [2 * _PLACE, 2 * _PLACE + 8]
mma_bfloat16 = _mma_intrinsic(
    "mma_bfloat16",
    "m16n8k16",
    "bf16",
    _mma(_HALF_ROWS, _HALF_COLUMNS, lambda bits: _half_values(bits, "bfloat16"), 16),
)
mma_float16 = _mma_intrinsic(
    "mma_float16",
    "m16n8k16",
    "f16",
    _mma(_HALF_ROWS, _HALF_COLUMNS, lambda bits: _half_values(bits, "float16"), 16),
)
"""(a0..a3, b0, b1, c0..c3) -> d0..d3: products exact, sums rounded towards zero."""


# --- numbers and their patterns -------------------------------------------------------------------------


_WORD, _REAL = struct.Struct("<I"), struct.Struct("<f")


def _float(bits: Any) -> np.float32:
    return np.float32(_REAL.unpack(_WORD.pack(int(bits) & 0xFFFFFFFF))[0])


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def _bits(x: Any) -> int:
    return _signed(_WORD.unpack(_REAL.pack(x))[0])


def _to_tf32(x: Any) -> int:
    """To the nearest of 10 fraction bits, ties away from zero; infinities and NaN stay."""
    bits = _WORD.unpack(_REAL.pack(x))[0]
    if bits & 0x7F800000 != 0x7F800000:
        bits = (bits + 0x1000) & 0xFFFFE000
    return _signed(bits)


def _pack(kind: str) -> Callable[[Any, Any], int]:
    def pack(low: Any, high: Any) -> int:
        return int(half_words(np.array([low, high], np.float32), kind).view(np.int32)[0])

    return pack


def _widen(kind: str) -> Callable[[Any], np.float32]:
    def widen(word: Any) -> np.float32:
        return half_values(np.array([word], np.uint16), kind)[0]

    return widen


def _narrow(kind: str) -> Callable[[Any], np.uint16]:
    def narrow(x: Any) -> np.uint16:
        return half_words(np.array([x], np.float32), kind)[0]

    return narrow


def _unpack(kind: str, half: int) -> Callable[[Any], np.float32]:
    def unpack(bits: Any) -> np.float32:
        return half_values(np.array([bits], np.int64).astype(np.int32).view(np.uint16), kind)[half]

    return unpack


to_tf32 = Intrinsic("to_tf32", "cvt.rna.tf32.f32 $0, $1;", "b32", "f32", emulate_thread=_to_tf32)
float_bits = Intrinsic("float_bits", "mov.b32 $0, $1;", "b32", "f32", emulate_thread=_bits)
bits_float = Intrinsic("bits_float", "mov.b32 $0, $1;", "f32", "b32", emulate_thread=_float)
rolled = Intrinsic("rolled", "", emulate_thread=lambda: None, effect=True, convergent=True)
"""In the body of a loop whose length is `opaque`: keeps it from being unrolled."""
opaque = Intrinsic("opaque", "mov.b32 $0, $1;", "b32", "b32", emulate_thread=int, effect=True)
"""An integer of which the compiler knows nothing."""
exp2 = Intrinsic("exp2", "ex2.approx.ftz.f32 $0, $1;", "f32", "f32", emulate_thread=lambda x: np.exp2(np.float32(x)))
"""2^x within 2 units in the last place; 0 for -inf."""
pack_bfloat16 = Intrinsic(
    "pack_bfloat16", "cvt.rn.bf16x2.f32 $0, $2, $1;", "b32", "f32 f32", emulate_thread=_pack("bfloat16")
)
"""(low, high) -> bits."""
pack_float16 = Intrinsic(
    "pack_float16", "cvt.rn.f16x2.f32 $0, $2, $1;", "b32", "f32 f32", emulate_thread=_pack("float16")
)
widen_bfloat16 = Intrinsic(
    "widen_bfloat16", "{ .reg .b16 z; mov.b16 z, 0; mov.b32 $0, {z, $1}; }", "f32", "h16",
    emulate_thread=_widen("bfloat16"),
)  # fmt: skip
widen_float16 = Intrinsic("widen_float16", "cvt.f32.f16 $0, $1;", "f32", "h16", emulate_thread=_widen("float16"))
narrow_bfloat16 = Intrinsic(
    "narrow_bfloat16", "cvt.rn.bf16.f32 $0, $1;", "h16", "f32", emulate_thread=_narrow("bfloat16")
)
narrow_float16 = Intrinsic("narrow_float16", "cvt.rn.f16.f32 $0, $1;", "h16", "f32", emulate_thread=_narrow("float16"))
low_bfloat16 = Intrinsic("low_bfloat16", "shl.b32 $0, $1, 16;", "f32", "b32", emulate_thread=_unpack("bfloat16", 0))
high_bfloat16 = Intrinsic(
    "high_bfloat16", "and.b32 $0, $1, 0xffff0000;", "f32", "b32", emulate_thread=_unpack("bfloat16", 1)
)
low_float16 = Intrinsic(
    "low_float16", "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, l; }", "f32", "b32",
    emulate_thread=_unpack("float16", 0),
)  # fmt: skip
high_float16 = Intrinsic(
    "high_float16", "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, h; }", "f32", "b32",
    emulate_thread=_unpack("float16", 1),
)  # fmt: skip
"""The lower or upper half of packed bits as float32."""
