"""Tiles meet no bank of shared memory twice: 32 banks of 4 bytes; 16-byte accesses go eight lanes at a time."""

import itertools

import pytest

from minigrad.kernels.cuda.head_tiles import HEAD_SIZES, place_in
from minigrad.kernels.cuda.tiles import CHUNK, DEPTH, DTYPES, deep, operand_a, operand_b, wide
from minigrad.simt import clone

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Recorder:
    """Stands for shared memory and for ldmatrix, and notes the indices that a lane reads."""

    def __init__(self):
        self.single, self.matrix = [], []

    def __getitem__(self, index):
        self.single.append(index)
        return 0.0

    def ldmatrix(self, memory, index):
        self.matrix.append(index)
        return 0, 0, 0, 0


def accesses(read, row, k):
    """For each access of the device function, the indices of the 32 lanes; and of how many elements each is."""
    recorders = [Recorder() for _ in range(32)]
    for lane, recorder in enumerate(recorders):

        def stand_in(name, value, recorder=recorder):
            if name.startswith("ldmatrix"):
                return recorder.ldmatrix
            return (lambda x: 0) if name == "float_bits" else value

        clone(read, stand_in)(recorder, 0, row, k, lane)
    wide_ones = [("chunk", indices) for indices in zip(*(r.matrix for r in recorders), strict=True)]
    return wide_ones + [("element", indices) for indices in zip(*(r.single for r in recorders), strict=True)]


def conflicts(kind, indices, size):
    """How many accesses to a bank have to wait for another to a different word of it."""
    found = 0
    if kind == "element":
        banks = {}
        for index in indices:
            banks.setdefault(index * size // 4 % 32, set()).add(index * size // 4)
        return sum(len(words) - 1 for words in banks.values())
    for first in range(0, 32, 8):
        lines = [index * size // 16 for index in indices[first : first + 8]]
        assert all(index * size % 16 == 0 for index in indices)
        found += 8 - len({line % 8 for line in lines})
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operand", [operand_a, operand_b])
@pytest.mark.parametrize("is_deep", [True, False])
def test_operands_of_products_are_read_without_conflicts(dtype, operand, is_deep):
    rows = 128
    read = operand(dtype, rows, is_deep)
    for row, k in itertools.product((0, 16, 48, 112), range(0, DEPTH[dtype], 8 if dtype == "float32" else 16)):
        for kind, indices in accesses(read, row, k):
            assert conflicts(kind, indices, BYTES[dtype]) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", HEAD_SIZES)
def test_head_tiles_are_read_without_conflicts(dtype, size):
    place = place_in(dtype, size)
    chunk = CHUNK[dtype]
    for c in range(0, size, chunk):
        assert conflicts("chunk", [place(lane, c) for lane in range(32)], BYTES[dtype]) == 0
    if dtype == "float32":  # the right operand of `mix`
        for n, odd in itertools.product(range(0, size, 8), (0, 1)):
            indices = [place(2 * (lane & 3) + odd, n + (lane >> 2)) for lane in range(32)]
            assert conflicts("element", indices, 4) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tile_holds_every_element_once_and_chunks_stay_whole(dtype):
    chunk = CHUNK[dtype]
    places = [(deep(dtype), 64, DEPTH[dtype], "column"), (wide(dtype, 64), 64, DEPTH[dtype], "row")]
    places += [(place_in(dtype, size), 16, size, "column") for size in HEAD_SIZES]
    for place, rows, columns, along in places:
        assert sorted(place(r, c) for r in range(rows) for c in range(columns)) == list(range(rows * columns))
        for r, c in itertools.product(range(rows), range(columns)):
            first = place(r, c // chunk * chunk) if along == "column" else place(r // chunk * chunk, c)
            assert place(r, c) == first + (c if along == "column" else r) % chunk


def test_the_count_of_conflicts_counts():
    assert conflicts("element", range(32), 4) == 0
    assert conflicts("element", [0] * 32, 4) == 0  # one word for all
    assert conflicts("element", [32 * lane for lane in range(32)], 4) == 31
    assert conflicts("chunk", [16 * lane for lane in range(32)], 4) == 24


def test_a_wide_tile_of_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="multiple of 128 bytes"):
        wide("float32", 48)
