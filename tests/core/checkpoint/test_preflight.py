from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError

FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
INDEX = "model.safetensors.index.json"
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)

pytestmark = pytest.mark.usefixtures("nothing_loads")


def refused(folder: Path) -> CheckpointError:
    """Open the folder, which must fail with an error that says all it has to."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    error = caught.value
    assert error.fault == "checkpoint"
    assert error.file is not None
    assert Path(error.file).name in str(error)
    assert error.found is not None
    assert error.expected is not None
    assert error.hint is not None
    assert error.hint in str(error)
    return error


def test_a_whole_checkpoint_is_opened_by_its_headers(two_shards: Path) -> None:
    checkpoint = open_checkpoint(two_shards)
    assert checkpoint.format == "safetensors"
    assert checkpoint.name == "model"
    assert checkpoint.model_type == "toy"
    assert {name: (info.shape, info.dtype) for name, info in checkpoint.tensors.items()} == {
        "a": ((2, 3), "F32"),
        "b": ((4,), "BF16"),
        "c": ((5,), "F16"),
        "d": ((), "F32"),
    }
    assert checkpoint.tensors["c"].file == SECOND
    assert checkpoint.nbytes == 24 + 8 + 10 + 4


def test_opening_a_checkpoint_imports_no_mlx(two_shards: Path) -> None:
    script = (
        "import sys; from phyla.checkpoint import open_checkpoint; "
        f"open_checkpoint({str(two_shards)!r}); "
        "print([name for name in ('mlx', 'huggingface_hub', 'gguf') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize("lost", [1, 10, 34])
def test_a_truncated_shard_is_told_by_its_bytes(two_shards: Path, lost: int) -> None:
    path = two_shards / SECOND
    content = path.read_bytes()
    path.write_bytes(content[:-lost])
    error = refused(two_shards)
    assert error.file == SECOND
    assert error.found == len(content) - lost
    assert "truncated" in str(error)
    assert str(len(content) - lost) in str(error)


def test_a_shard_cut_in_its_data_is_expected_at_its_full_length(two_shards: Path) -> None:
    path = two_shards / FIRST
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert refused(two_shards).expected == len(content)


def test_a_shard_with_bytes_after_its_data_is_refused(two_shards: Path) -> None:
    path = two_shards / FIRST
    content = path.read_bytes()
    path.write_bytes(content + b"tail")
    error = refused(two_shards)
    assert (error.found, error.expected) == (len(content) + 4, len(content))


@pytest.mark.parametrize("file", [FIRST, INDEX, "config.json", "tokenizer.json"])
def test_a_git_lfs_pointer_is_called_one(two_shards: Path, file: str) -> None:
    (two_shards / file).write_text(POINTER)
    error = refused(two_shards)
    assert error.file == file
    assert (error.found, error.expected) == (len(POINTER), 12345)
    assert "Git LFS pointer" in str(error)
    assert "git lfs pull" in str(error.hint)


@pytest.mark.parametrize("file", [SECOND, INDEX, "config.json", "tokenizer.json"])
def test_an_empty_file_is_called_empty(two_shards: Path, file: str) -> None:
    (two_shards / file).write_bytes(b"")
    error = refused(two_shards)
    assert (error.file, error.found) == (file, 0)


def test_a_page_saved_under_a_shard_s_name_is_no_safetensors_file(two_shards: Path) -> None:
    (two_shards / FIRST).write_text("<!DOCTYPE html><html>Not found</html>")
    error = refused(two_shards)
    assert error.file == FIRST
    assert "<!DOCTYPE" in str(error)


def test_a_missing_shard_is_named(two_shards: Path) -> None:
    (two_shards / SECOND).unlink()
    error = refused(two_shards)
    assert error.file == SECOND
    assert (error.found, error.expected) == (1, 2)


def test_a_link_to_a_deleted_blob_is_told_with_its_target(two_shards: Path) -> None:
    (two_shards / SECOND).unlink()
    (two_shards / SECOND).symlink_to(two_shards / "blobs" / "abc")
    error = refused(two_shards)
    assert error.file == SECOND
    assert str(two_shards / "blobs" / "abc") in str(error)


def test_a_broken_blob_behind_a_link_is_named_so_that_both_are_deleted(two_shards: Path) -> None:
    blob = two_shards.parent / "blob"
    blob.write_bytes((two_shards / SECOND).read_bytes()[:-1])
    (two_shards / SECOND).unlink()
    (two_shards / SECOND).symlink_to(blob)
    assert str(blob) in str(refused(two_shards).hint)


def test_an_index_naming_a_tensor_that_its_shard_lacks_is_stale(two_shards: Path) -> None:
    index = json.loads((two_shards / INDEX).read_text())
    index["weight_map"]["gone"] = FIRST
    (two_shards / INDEX).write_text(json.dumps(index))
    error = refused(two_shards)
    assert (error.file, error.field) == (INDEX, "gone")
    assert "stale" in str(error)


def test_an_index_naming_the_wrong_shard_is_stale(two_shards: Path) -> None:
    index = json.loads((two_shards / INDEX).read_text())
    index["weight_map"]["a"] = SECOND
    (two_shards / INDEX).write_text(json.dumps(index))
    error = refused(two_shards)
    assert (error.found, error.expected) == (f"in {FIRST}", f"in {SECOND}")


def test_an_index_lacking_a_shard_s_tensor_is_stale(two_shards: Path) -> None:
    index = json.loads((two_shards / INDEX).read_text())
    del index["weight_map"]["b"]
    (two_shards / INDEX).write_text(json.dumps(index))
    error = refused(two_shards)
    assert (error.file, error.field) == (INDEX, "b")
    assert FIRST in str(error)


def test_a_shard_that_the_index_does_not_name_is_refused(two_shards: Path) -> None:
    extra = "model-00001-of-00003.safetensors"
    (two_shards / extra).write_bytes((two_shards / FIRST).read_bytes())
    error = refused(two_shards)
    assert error.file == extra
    assert INDEX in str(error)


def test_an_index_left_from_a_sharded_download_beside_a_single_file_is_stale(write_folder) -> None:
    folder = write_folder(index={"w": FIRST})
    error = refused(folder)
    assert error.file == INDEX
    assert "model.safetensors" in str(error)
    assert f"delete {INDEX}" in str(error.hint)


@pytest.mark.parametrize(
    "weight_map", [None, {}, [], {"w": 1}, {"w": "../model.safetensors"}, {"w": "/etc/passwd"}]
)
def test_an_index_must_map_names_to_files_beside_it(write_folder, weight_map: object) -> None:
    folder = write_folder()
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert refused(folder).field == "weight_map"


def test_an_index_of_a_single_file_is_followed(write_folder) -> None:
    assert set(open_checkpoint(write_folder(index=True)).tensors) == {"w"}


@pytest.mark.parametrize(
    "files",
    [
        ["weights.safetensors"],
        ["part-one.safetensors", "part-two.safetensors"],
        ["foo-00001-of-00002.safetensors", "foo-00002-of-00002.safetensors"],
    ],
)
def test_other_file_names_without_an_index_are_taken_when_whole(write_folder, files) -> None:
    folder = write_folder({file: {f"w{i}": ("F32", [2])} for i, file in enumerate(files)})
    tensors = open_checkpoint(folder).tensors
    assert {tensor.file for tensor in tensors.values()} == set(files)


def test_a_numbered_file_without_its_sibling_and_without_an_index_is_refused(write_folder) -> None:
    error = refused(write_folder({"foo-00001-of-00002.safetensors": {"w": ("F32", [2])}}))
    assert error.file == "foo-00002-of-00002.safetensors"
    assert (error.found, error.expected) == (1, 2)


def test_a_tensor_in_two_files_is_refused(write_folder) -> None:
    layout = {"w": ("F32", [2])}
    error = refused(write_folder({"one.safetensors": layout, "two.safetensors": layout}))
    assert error.field == "w"
    assert error.found == ["one.safetensors", "two.safetensors"]


def test_a_single_file_beside_a_numbered_one_without_an_index_is_ambiguous(write_folder) -> None:
    layout = {"w": ("F32", [2])}
    error = refused(write_folder({"model.safetensors": layout, FIRST: layout}))
    assert error.file == FIRST


def test_a_second_copy_and_an_adapter_beside_the_model_are_left_alone(write_folder) -> None:
    layout = {"w": ("F32", [2])}
    for index in (False, {"w": "model.safetensors"}):
        folder = write_folder(
            {
                "model.safetensors": layout,
                "consolidated.safetensors": layout,
                "adapter_model.safetensors": {"lora": ("F32", [1])},
            },
            index=index,
        )
        assert {t.file for t in open_checkpoint(folder).tensors.values()} == {"model.safetensors"}


def test_files_that_a_desktop_leaves_behind_are_no_shards(two_shards: Path) -> None:
    (two_shards / f"._{FIRST}").write_bytes(b"resource fork")
    assert set(open_checkpoint(two_shards).tensors) == {"a", "b", "c", "d"}


def test_a_lone_adapter_is_called_one(write_folder) -> None:
    error = refused(write_folder({"adapter_model.safetensors": {"lora": ("F32", [1])}}))
    assert "adapter" in str(error)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "consolidated.00.pth"])
def test_weights_in_another_format_are_to_be_converted(write_folder, file: str) -> None:
    folder = write_folder({})
    (folder / file).write_bytes(b"pickle")
    error = refused(folder)
    assert error.file == file
    assert "Convert" in str(error.hint)


def test_a_folder_without_weights_says_so(write_folder) -> None:
    assert "no weights" in str(refused(write_folder({})))


def test_a_folder_without_config_points_at_its_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "model.Q4_1.gguf").write_bytes(b"GGUF")
    error = refused(tmp_path)
    assert error.file == "config.json"
    assert str(tmp_path / "model.Q4_1.gguf") in str(error.hint)


def test_corrupt_json_is_told_by_line_and_column(two_shards: Path) -> None:
    (two_shards / "config.json").write_text('{\n  "model_type": "toy"\n  "x": 1}\n')
    error = refused(two_shards)
    assert error.file == "config.json"
    assert "line 3, column 3" in str(error)


@pytest.mark.parametrize(
    "content", [b"[]", b'"text"', b"\xff\xfe{}", b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}"]
)
def test_a_config_that_is_no_json_object_is_refused(two_shards: Path, content: bytes) -> None:
    (two_shards / "config.json").write_bytes(content)
    assert refused(two_shards).file == "config.json"


def test_a_byte_order_mark_before_the_config_is_no_harm(two_shards: Path) -> None:
    (two_shards / "config.json").write_bytes(b'\xef\xbb\xbf{"model_type": "toy"}')
    assert open_checkpoint(two_shards).model_type == "toy"


def test_a_config_without_model_type_leaves_it_open(write_folder) -> None:
    assert open_checkpoint(write_folder(config={"hidden_size": 8})).model_type is None


def test_a_model_type_that_is_no_text_is_refused(write_folder) -> None:
    assert refused(write_folder(config={"model_type": ["toy"]})).field == "model_type"


def test_a_broken_generation_config_is_refused(two_shards: Path) -> None:
    (two_shards / "generation_config.json").write_text("{")
    assert refused(two_shards).file == "generation_config.json"


def test_the_generation_config_is_read_and_may_be_absent(two_shards: Path) -> None:
    assert open_checkpoint(two_shards).generation_config == {}
    (two_shards / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert open_checkpoint(two_shards).generation_config == {"eos_token_id": [1, 2]}


@pytest.mark.parametrize("dtype", ["F64", "F8_E4M3", "F8_E8M0"])
def test_a_weight_in_a_dtype_that_mlx_lacks_is_refused(write_folder, dtype: str) -> None:
    error = refused(write_folder({"model.safetensors": {"w.weight": (dtype, [4])}}))
    assert (error.field, error.found) == ("w.weight", dtype)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E8M0", "U8"])
def test_scales_may_be_bytes_under_any_name(write_folder, dtype: str) -> None:
    layout = {"w.weight": ("U32", [4]), "w.scales": (dtype, [4])}
    checkpoint = open_checkpoint(write_folder({"model.safetensors": layout}))
    assert checkpoint.tensors["w.scales"].dtype == dtype


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told(two_shards: Path) -> None:
    (two_shards / FIRST).chmod(0)
    assert refused(two_shards).file == FIRST


def test_a_folder_in_a_shard_s_place_is_told(two_shards: Path) -> None:
    (two_shards / FIRST).unlink()
    (two_shards / FIRST).mkdir()
    assert refused(two_shards).file == FIRST
