"""safetensors: round trips, sharing, atomic writes, and one clear sentence for every broken file."""

import json
import os

import numpy as np
import pytest

import minigrad as mg
from minigrad import io, nn

TENSORS = {
    "f64": mg.tensor([1.5, -2.0], dtype=mg.float64),
    "f32": mg.randn(2, 3, generator=mg.Generator(0)),
    "f16": mg.tensor([1.5, 2.0]).half(),
    "bf16": mg.tensor([1.5, 3e38]).bfloat16(),
    "i64": mg.arange(3),
    "u8": mg.tensor([1, 255], dtype=mg.uint8),
    "bool": mg.tensor([True, False]),
    "scalar": mg.tensor(3.0),
    "empty": mg.zeros(0, 4),
    "strided": mg.randn(4, 3, generator=mg.Generator(1)).T,
}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy())


def test_round_trip_of_every_dtype_and_of_metadata(tmp_path):
    path = tmp_path / "model.safetensors"
    io.save_file(TENSORS, path, {"step": "7"})
    loaded = io.load_file(path)
    assert set(loaded) == set(TENSORS)
    assert all(same(loaded[name], TENSORS[name]) for name in TENSORS)
    assert io.load_metadata(path) == {"step": "7"}
    loaded["f32"].add_(1.0)  # the loaded tensors own writable memory


def test_a_mapped_file_is_read_as_it_is_looked_at_and_never_changed(tmp_path):
    path = tmp_path / "model.safetensors"
    io.save_file(TENSORS, path)
    content = path.read_bytes()
    mapped = io.load_file(path, mapped=True)
    assert all(same(mapped[name], TENSORS[name]) for name in TENSORS)
    mapped["f32"].add_(1.0)
    np.testing.assert_array_equal(mapped["f32"], TENSORS["f32"] + 1.0)
    assert path.read_bytes() == content
    io.save_file({"other": mg.zeros(100)}, path)  # replaced: what is mapped stays
    assert same(mapped["i64"], TENSORS["i64"])


def test_released_pages_are_read_again(tmp_path):
    path = tmp_path / "model.safetensors"
    values = np.arange(3 * 4096 * 4, dtype=np.float32).reshape(-1, 64)
    io.save_file({"before": mg.ones(3), "values": mg.tensor(values), "after": mg.zeros(5000)}, path)
    mapped = {name: tensor.numpy() for name, tensor in io.load_file(path, mapped=True).items()}
    mapped["after"][:] = 7.0
    for part in (mapped["values"], mapped["values"].T[3:9], mapped["values"][::-1, 2]):
        assert part.sum() > 0
        io.release(part)
    np.testing.assert_array_equal(mapped["values"], values)
    assert (mapped["after"] == 7.0).all()
    own = np.ones(100_000, np.float32)
    io.release(own)
    assert (own == 1.0).all()


def test_the_safetensors_library_reads_and_writes_the_same_files(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    io.save_file({name: value for name, value in TENSORS.items() if name != "bf16"}, path)
    for name, array in library.load_file(path).items():
        np.testing.assert_array_equal(array, TENSORS[name].numpy())
    library.save_file({"a": np.arange(6.0).reshape(2, 3), "b": np.array([True])}, path)
    loaded = io.load_file(path)
    np.testing.assert_array_equal(loaded["a"], np.arange(6.0).reshape(2, 3))
    assert loaded["b"].dtype == mg.bool


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight


def test_a_tied_weight_is_stored_once_and_loads_under_both_names(tmp_path):
    path = tmp_path / "tied.safetensors"
    source, target = Tied(), Tied()
    io.save_file(source.state_dict(), path)
    assert path.stat().st_size < 1.5 * 50 * 8 * 4
    loaded = io.load_file(path)
    assert loaded["head.weight"] is loaded["embedding.weight"]
    target.load_state_dict(loaded)
    assert same(target.head.weight.detach(), source.head.weight.detach())
    assert target.head.weight is target.embedding.weight


def test_what_begins_at_one_place_is_one_tensor_only_if_it_is_laid_out_alike(tmp_path):
    path, square, nothing = tmp_path / "views.safetensors", mg.tensor([[1.0, 2.0], [3.0, 4.0]]), mg.zeros(0)
    io.save_file({"w": square, "turned": square.T, "none": nothing, "none again": nothing}, path)
    loaded = io.load_file(path)
    assert loaded["turned"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0  # what follows is aligned
    assert set(json.loads(data[8 : 8 + length])) == {"w", "turned", "none", "none again"}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    io.save_file({"a": mg.ones(2)}, path)

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        io.save_file({"a": mg.zeros(3)}, path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    np.testing.assert_array_equal(io.load_file(path)["a"], [1.0, 1.0])


def test_a_new_file_has_ordinary_permissions(tmp_path):
    path = tmp_path / "model.safetensors"
    io.save_file({"a": mg.ones(2)}, path)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode


def test_what_cannot_be_stored_is_refused(tmp_path):
    with pytest.raises(TypeError, match="a: safetensors cannot store complex128"):
        io.save_file({"a": np.array([1j])}, tmp_path / "x")
    with pytest.raises(TypeError, match="metadata"):
        io.save_file({"a": mg.ones(1)}, tmp_path / "x", {"step": 3})
    with pytest.raises(TypeError, match="got the key 1: names are strings"):
        io.save_file({1: mg.ones(1)}, tmp_path / "x")
    with pytest.raises(ValueError, match="cannot be called __metadata__"):
        io.save_file({"__metadata__": mg.ones(1)}, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has 0 bytes"),
        (b"\xff" * 8, "its header claims"),
        (b"\x50\x00\x00\x00\x00\x00\x00\x00{}", "the file ends after 2"),
        (file_of(b"{'a'}"), "not JSON"),
        (file_of(b"[" * 100_000), "nested too deeply|not JSON"),
        (file_of([1]), "not a table of tensors"),
        (file_of({"__metadata__": {"a": 1}}), "metadata are not strings"),
        (file_of({"a": 3}), "does not say dtype, shape and data_offsets"),
        (file_of({"a": entry("C64")}, b"0" * 8), "has dtype 'C64'"),
        (file_of({"a": entry(shape=(-2,))}, b"0" * 8), "which are no sizes"),
        (file_of({"a": entry(shape=(True, 2))}, b"0" * 8), "which are no sizes"),
        (file_of({"a": entry(offsets=(8, 0))}, b"0" * 8), "which are no sizes"),
        (file_of({"a": entry(shape=(2**40, 2**40))}, b"0" * 8), "needs 4835703278458516698824704 bytes"),
        (file_of({"a": entry(), "b": entry()}, b"0" * 8), "gap or overlap"),
        (file_of({"a": entry(offsets=(4, 12))}, b"0" * 12), "gap or overlap"),
        (file_of({"a": entry()}, b"0" * 7), "need 8 bytes and 7 are there"),
        (file_of({"a": entry()}, b"0" * 9), "need 8 bytes and 9 are there"),
        (file_of(b'{"a":1,"a":2}'), "occurs twice"),
        (file_of({"__metadata__": {"minigrad.shared": "[]"}}), "not a table of names"),
        (file_of({"__metadata__": {"minigrad.shared": '{"a": "b"}'}}), "which cannot be"),
    ],
)
def test_broken_files_are_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(io.FormatError, match=message) as caught:
        io.load_file(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_every_truncation_of_a_good_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    io.save_file({"a": mg.ones(3), "b": mg.arange(2)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(io.FormatError):
            io.load_file(path)
