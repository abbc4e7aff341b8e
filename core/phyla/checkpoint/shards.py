"""Finds the safetensors files that make up a folder's weights and holds them against each other.

Knows the names such files go by: `model.safetensors`, numbered shards, the index that lists them,
and the files beside them that are no part of the model (adapters, a second copy in the original
layout). Reads headers only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.checkpoint.files import read_json
from phyla.checkpoint.safetensors import read_header
from phyla.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from phyla.checkpoint.checkpoint import TensorInfo

_SINGLE = "model.safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_OTHER_FORMATS = (".bin", ".pth", ".pt", ".ckpt", ".h5", ".msgpack", ".onnx", ".npz")
_WEIGHTS = (".safetensors", ".gguf", *_OTHER_FORMATS)


@dataclass(frozen=True)
class Shards:
    """A folder's weight files and the tensors in them, by name."""

    paths: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]


def read_shards(folder: Path, *, optional: bool = False) -> Shards:
    """Read the headers of all files that make up the folder's weights.

    With an index, exactly the files it names. Without, `model.safetensors`, and otherwise every
    safetensors file that is no adapter, if none is missing from a numbered series and no tensor
    is in two. A second copy named `consolidated*` counts only when there is nothing else.

    Args:
        folder: the folder that holds them.
        optional: whether no weights, in any format, are no error but no tensors.

    Raises:
        CheckpointError: there are no such files, one is missing or broken, or the index and the
            files disagree.
    """
    listed = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    index = _index(folder, listed)
    if index is None:
        if optional and not any(name.endswith(_WEIGHTS) for name in listed):
            return Shards((), {})
        names = _unindexed(folder, listed)
        return _read(folder, names)
    weight_map = _weight_map(folder / index)
    names = sorted(set(weight_map.values()))
    if optional and not any(name.endswith(_WEIGHTS) for name in listed):
        return Shards((), {})
    _check_present(folder, index, names, listed)
    shards = _read(folder, names)
    _check_index(index, weight_map, shards.tensors)
    return shards


def _index(folder: Path, listed: list[str]) -> str | None:
    indexes = [name for name in listed if name.endswith(_INDEX_SUFFIX)]
    if len(indexes) > 1:
        indexes = [name for name in indexes if not name.startswith("consolidated")]
    if f"model{_INDEX_SUFFIX}" in indexes:
        return f"model{_INDEX_SUFFIX}"
    if len(indexes) > 1:
        raise CheckpointError(
            f"The folder {folder} has several indexes: {', '.join(indexes)}.",
            file=indexes[0],
            found=len(indexes),
            expected=1,
            hint="Keep the index of the model you want, and its shards, in a folder of their own.",
        )
    return indexes[0] if indexes else None


def _weight_map(path: Path) -> dict[str, str]:
    weight_map = read_json(path).get("weight_map")
    if not (weight_map and isinstance(weight_map, dict) and _are_file_names(weight_map.values())):
        raise CheckpointError(
            f"{path.name} should map each tensor's name to the name of a file beside it in "
            "`weight_map`, and does not.",
            file=path.name,
            found=type(weight_map).__name__,
            expected="an object of file names",
            field="weight_map",
            hint="Download the index again.",
        )
    return weight_map


def _are_file_names(values: Iterable[object]) -> bool:
    names = {value if isinstance(value, str) else "" for value in values}
    return "" not in names and all(Path(name).name == name for name in names)


def _check_present(folder: Path, index: str, names: list[str], listed: list[str]) -> None:
    missing = [name for name in names if name not in listed]
    if missing and _SINGLE in listed and _SINGLE not in names:
        raise CheckpointError(
            f"{index} is stale: it names {_some(missing)}, which the folder does not have, "
            f"and leaves out {_SINGLE}, which it has.",
            file=index,
            found=_SINGLE,
            expected=missing[0],
            hint=f"If {_SINGLE} is the whole model, delete {index}; otherwise download the "
            f"missing file{'s' * (len(missing) > 1)} into {folder}.",
        )
    if missing:
        raise CheckpointError(
            f"{_some(missing)} missing: {index} names {len(names)} "
            f"file{'s' * (len(names) > 1)}, found {len(names) - len(missing)}.",
            file=missing[0],
            found=len(names) - len(missing),
            expected=len(names),
            hint=f"Download {_some(missing)} into {folder}.",
        )
    extra = [
        name
        for name in listed
        if name not in names and _NUMBERED.fullmatch(name) and not _is_second_copy(name)
    ]
    if extra:
        raise CheckpointError(
            f"{index} is stale, or files of another download are in its folder: it does not "
            f"name {_some(extra)}.",
            file=extra[0],
            found=extra[0],
            expected=f"only files that {index} names",
            hint=f"Download {index} again, or delete the files if they do not belong to the model.",
        )


def _check_index(
    index: str, weight_map: Mapping[str, str], tensors: Mapping[str, TensorInfo]
) -> None:
    # The index's `metadata.total_size` is not compared: converters count tied weights in it or
    # not, as they please, and every file's size is already held against its own header.
    absent = [
        name
        for name, file in weight_map.items()
        if (tensor := tensors.get(name)) is None or tensor.file != file
    ]
    if absent:
        name, file = absent[0], weight_map[absent[0]]
        found = f"in {tensors[name].file}" if name in tensors else "in no file"
        raise CheckpointError(
            f"{index} is stale: tensor {name!r} should be in {file} and is {found}"
            f"{_and_more(absent)}.",
            file=index,
            found=found,
            expected=f"in {file}",
            field=name,
            hint=f"Download {index} and {file} again, from the same revision.",
        )
    unlisted = [name for name in tensors if name not in weight_map]
    if unlisted:
        file = tensors[unlisted[0]].file
        raise CheckpointError(
            f"{index} is stale: {file} holds the tensor {unlisted[0]!r}, which the index does "
            f"not name{_and_more(unlisted)}.",
            file=index,
            found=f"in {file}",
            expected="a tensor that the index names",
            field=unlisted[0],
            hint=f"Download {index} and {file} again, from the same revision.",
        )


def _unindexed(folder: Path, listed: list[str]) -> list[str]:
    files = [name for name in listed if name.endswith(".safetensors")]
    weights = [name for name in files if not name.startswith("adapter")]
    names = [name for name in weights if not _is_second_copy(name)] or weights
    if not names:
        raise _no_weights(folder, listed, adapters=files)
    numbered = [match for name in names if (match := _NUMBERED.fullmatch(name))]
    if _SINGLE in names:
        if numbered:
            raise CheckpointError(
                f"The folder has both {_SINGLE} and {numbered[0][0]}, and no index that says "
                "which of them make up the model.",
                file=numbered[0][0],
                found=[_SINGLE, *(match[0] for match in numbered)],
                expected="one or the other",
                hint=f"Move the files that do not belong to the model out of {folder}.",
            )
        return [_SINGLE]
    _check_series(folder, numbered)
    return names


def _check_series(folder: Path, numbered: Iterable[re.Match[str]]) -> None:
    series: dict[tuple[str, str], set[int]] = defaultdict(set)
    for match in numbered:
        series[match["stem"], match["count"]].add(int(match["number"]))
    for (stem, count), numbers in series.items():
        missing = [
            f"{stem}-{number:05}-of-{count}.safetensors"
            for number in range(1, int(count) + 1)
            if number not in numbers
        ]
        if missing:
            raise CheckpointError(
                f"{_some(missing)} missing: found {len(numbers)} of {int(count)} shards.",
                file=missing[0],
                found=len(numbers),
                expected=int(count),
                hint=f"Download {_some(missing)} into {folder}.",
            )


def _no_weights(folder: Path, listed: list[str], *, adapters: list[str]) -> CheckpointError:
    if adapters:
        return CheckpointError(
            f"The folder {folder} holds an adapter only ({adapters[0]}), not a model.",
            file=adapters[0],
            found=adapters[0],
            expected="model weights",
            hint="Merge the adapter into its base model, and open the result.",
        )
    ggufs = [name for name in listed if name.endswith(".gguf")]
    if ggufs:
        return CheckpointError(
            f"The folder {folder} has no safetensors file, only GGUF: {_some(ggufs)}.",
            file=ggufs[0],
            found=ggufs[0],
            expected="*.safetensors",
            hint=f"Open the file itself: {folder / ggufs[0]}",
        )
    others = [name for name in listed if name.endswith(_OTHER_FORMATS)]
    if others:
        return CheckpointError(
            f"The folder {folder} has its weights in another format only: {_some(others)}.",
            file=others[0],
            found=others[0],
            expected="*.safetensors",
            hint="Convert them to safetensors (load the model with transformers and save it with "
            "save_pretrained), or take a repository that has them.",
        )
    return CheckpointError(
        f"The folder {folder} has no weights: no *.safetensors file.",
        file=str(folder),
        found="no *.safetensors file",
        expected="*.safetensors",
        hint="Download the weights into it, or name the folder that holds them.",
    )


def _is_second_copy(name: str) -> bool:
    """Whether this is the original layout's file, as some publishers put beside the converted."""
    return name.startswith("consolidated")


def _read(folder: Path, names: list[str]) -> Shards:
    tensors: dict[str, TensorInfo] = {}
    for name in names:
        held = read_header(folder / name)
        if twice := tensors.keys() & held.keys():
            tensor = min(twice)
            raise CheckpointError(
                f"The tensor {tensor!r} is in two files: {tensors[tensor].file} and {name}.",
                file=name,
                found=[tensors[tensor].file, name],
                expected="one file",
                field=tensor,
                hint=f"Move the file that does not belong to the model out of {folder}.",
            )
        tensors.update(held)
    if not tensors:
        raise CheckpointError(
            f"{_some(names)}: no tensor in it.",
            file=names[0],
            found="no tensor",
            expected="the model's weights",
            hint=f"Download the weights into {folder} again.",
        )
    return Shards(tuple(folder / name for name in names), tensors)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _and_more(names: list[str]) -> str:
    return f", as for {len(names) - 1} more" if len(names) > 1 else ""
