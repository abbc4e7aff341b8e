from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from phyla import backend
from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def test_loading_gives_every_tensor_with_the_files_values(two_shards: Path) -> None:
    backend.prepare()
    import mlx.core as mx
    import numpy as np

    checkpoint = open_checkpoint(two_shards)
    arrays = checkpoint.load()
    stored = bytes(range(24))
    a = arrays.pop("a")
    assert a.dtype == mx.float32
    assert np.array(a).tobytes() == stored
    assert arrays.pop("b").dtype == mx.bfloat16
    assert np.array(arrays.pop("c")).tobytes() == bytes(range(10))
    assert arrays.pop("d").shape == ()


def test_a_file_that_was_cut_after_it_was_opened_is_an_error_of_ours(two_shards: Path) -> None:
    checkpoint = open_checkpoint(two_shards)
    (two_shards / "model-00002-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load()
    assert caught.value.file == "model-00002-of-00002.safetensors"
