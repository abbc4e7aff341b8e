from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyla.checkpoint import open_checkpoint
from phyla.checkpoint.safetensors import read_header
from phyla.errors import CheckpointError

LAYOUT = {"a": ("F32", [2, 3]), "b.weight": ("BF16", [4]), "empty": ("F16", [0, 7])}


def opened_or_refused(content: bytes) -> None:
    """A file is opened only if MLX then reads the very tensors that were announced."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(content)
        try:
            checkpoint = open_checkpoint(folder)
            arrays = checkpoint.load()
        except CheckpointError:
            return
        for tensor in checkpoint.tensors.values():
            array = arrays.pop(tensor.name)
            assert (array.shape, array.nbytes) == (tensor.shape, tensor.nbytes)


@given(st.data())
def test_a_cut_file_is_refused(safetensors_bytes, data: st.DataObject) -> None:
    whole = safetensors_bytes(LAYOUT)
    kept = data.draw(st.integers(0, len(whole) - 1))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.safetensors"
        path.write_bytes(whole[:kept])
        with pytest.raises(CheckpointError):
            read_header(path)


@given(st.data())
def test_a_file_with_changed_header_bytes_is_read_or_refused(safetensors_bytes, data) -> None:
    content = bytearray(safetensors_bytes(LAYOUT))
    header = 8 + int.from_bytes(content[:8], "little")
    changes = st.tuples(st.integers(0, header - 1), st.integers(0, 255))
    for position, value in data.draw(st.lists(changes, min_size=1, max_size=4)):
        content[position] = value
    opened_or_refused(bytes(content))


# Values such as a header may hold where another one should be.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-1, 9), max_size=3),
    st.sampled_from(["F32", "I32", "F4", "F6_E2M3", "C64"]),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@given(st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), ODD, max_size=3), ODD)
def test_a_header_with_odd_values_is_read_or_refused(changed, other) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}
    for header in ({"a": entry}, {"a": other}, other):
        text = json.dumps(header).encode()
        opened_or_refused(len(text).to_bytes(8, "little") + text + bytes(8))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"a": {"dtype": "F33", "shape": [2], "data_offsets": [0, 8]}}, "unknown dtype 'F33'"),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "takes 12 bytes"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "-2 where a length"),
        ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, "True where a length"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "begins at byte 4"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "lacks"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            },
            "begins at byte 4 of the data, where 8 was due",
        ),
    ],
)
def test_a_header_that_contradicts_itself_says_how(tmp_path: Path, header, reason) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    assert reason in str(caught.value)
    assert caught.value.file == "model.safetensors"
