"""Large pages: where the system has them they lie under what a plan reads, and nothing else changes anywhere."""

import mmap
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.compiler import compile
from minigrad.kernels import pages

COUNT = 12  # large pages


def large_kilobytes(array):
    """How much of the memory around `array` lies in large pages, by the system's own count."""
    address, inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word = line.split()[0]
        if "-" in word:
            start, stop = (int(part, 16) for part in word.split("-"))
            inside = start <= address < stop
        elif inside and word == "AnonHugePages:":
            return int(line.split()[1])
    return 0


@pytest.fixture
def block():
    """Memory in small pages, all of it written."""
    memory = mmap.mmap(-1, COUNT * pages.SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if available() else None
    if memory is None:
        pytest.skip("this system has no large pages, or no way to ask for them")
    array = np.frombuffer(memory, np.float32)
    array[:] = np.arange(array.size) % 251
    return array


def available():
    probe = np.ones(COUNT * pages.SIZE // 4, np.float32)
    return pages.enlarge([probe]) > 0


def test_memory_moves_to_large_pages_and_keeps_its_values(block):
    address, before = block.ctypes.data, large_kilobytes(block)
    parts = np.array_split(block, 7)  # weights that lie next to each other
    assert pages.enlarge(parts) >= COUNT // 2  # it is advice: the system may have no room for some
    assert large_kilobytes(block) > before
    assert block.ctypes.data == address
    assert np.array_equal(block, np.arange(block.size) % 251)


def test_a_plan_puts_them_under_its_weights(block):
    weight = mg.from_numpy(block.reshape(-1, 1024))
    step = compile(lambda x: x @ weight)
    x = mg.ones(1, weight.shape[0])
    with mg.no_grad():
        first, again = step(x), step(x)
    assert large_kilobytes(block) >= COUNT // 2 * pages.SIZE // 1024
    assert np.array_equal(first.numpy(), again.numpy())
    assert np.allclose(first.numpy(), block.reshape(-1, 1024).sum(0, dtype=np.float64))


def test_little_memory_stays_where_it_is(block):
    before = large_kilobytes(block)
    assert pages.enlarge([block[: pages.LEAST // 4 - 1]]) == 0
    assert pages.enlarge([]) == 0
    assert large_kilobytes(block) == before


def test_memory_counts_once_however_often_it_is_named(block):
    part = block[: pages.LEAST // 8]
    assert pages.enlarge([part, part, part]) == 0


def test_other_memory_is_left_alone(tmp_path):
    file = tmp_path / "weights"
    np.arange(pages.LEAST // 2, dtype=np.float32).tofile(file)
    mapped = np.memmap(file, np.float32, "r")
    pages.enlarge([mapped, np.empty(0, np.float32), mapped[::3]])
    assert np.array_equal(mapped, np.arange(mapped.size))


def test_a_system_without_them_is_asked_nothing(monkeypatch, tmp_path):
    block = np.ones(pages.LEAST, np.float32)
    for settings in (tmp_path, tmp_path / "never"):
        monkeypatch.setattr(pages, "_SETTINGS", settings)
        (tmp_path / "never").mkdir(exist_ok=True)
        (tmp_path / "never/enabled").write_text("always madvise [never]\n")
        (tmp_path / "never/hpage_pmd_size").write_text("2097152\n")
        pages._collapse.cache_clear()
        assert pages.enlarge([block]) == 0
    monkeypatch.undo()
    pages._collapse.cache_clear()
