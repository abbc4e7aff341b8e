"""Images and videos in MiniCPM-V give what they give in transformers, in float32."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.checkpoint import open_checkpoint
from phyla.engine.layers import Allocation
from phyla.family import MediaRequest, MediaRun, Soft, Step
from phyla.registry import discover
from phyla.testing import MARKS, Forward, assert_close, read_tiny
from phyla.testing.footage import Footage
from phyla.testing.media_parity import (
    MediaParity,
    Mixed,
    beside,
    resize_rows_first,
    show_media,
)
from phyla.testing.reference import write_reference_checkpoint
from phyla.testing.sight import template
from phyla_families.minicpm.canvas import canvas_positions
from phyla_families.minicpm.slicing import slicing
from phyla_families.minicpm.tower_config import CanvasMarkers, TowerConfig
from phyla_families.minicpm.vision import table_places
from phyla_families.minicpm.vision_config import VisionConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import MediaItem
    from phyla.family import MediaReader, Plan
    from phyla.media import VideoClip

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
IDS = {
    "<|image_pad|>": 270, "<|video_pad|>": 271, "<image>": 272, "</image>": 273, "<slice>": 274,
    "</slice>": 275, "\n": 276, "<image_id>": 277, "</image_id>": 278,
}  # fmt: skip
# Texts that only take the ids up to 270.
UNUSED = tuple(f"<|unused_{number}|>" for number in range(7))
TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "image_size": 448, "patch_size": 14,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "4.6": {},
    "a larger table": {"vision_config": {**TOWER, "image_size": 980}},
    "a table that does not divide": {"vision_config": {**TOWER, "image_size": 140}},
    "4x": {"downsample_mode": "4x"},
    "4x merged twice": {"downsample_mode": "4x", "merger_times": 2},
    "joined behind the last layer": {"insert_layer_id": 2},
    "merged three times": {"merger_times": 3},
}


@dataclass(frozen=True)
class Picture:
    """Stands in for `phyla.media.ImageFile`."""

    array: NDArray[np.uint8]

    @property
    def size(self) -> tuple[int, int]:
        return self.array.shape[1], self.array.shape[0]

    def pixels(self) -> NDArray[np.uint8]:
        return self.array


def picture(width: int, height: int, seed: int = 0) -> Picture:
    """Smooth waves and some noise, as resizing meets them."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    waves = np.stack([np.sin(x / (9 + c)) * np.cos(y / (13 - 2 * c)) for c in range(3)], axis=-1)
    noise = rng.normal(0, 12, (height, width, 3))
    return Picture(np.clip(127 + 100 * waves + noise, 0, 255).astype(np.uint8))


def seeing(name: str = "4.6", **changes: Any) -> dict[str, Any]:
    return {**TABLE[name].config, "vision_config": TOWER, "insert_layer_id": 1, **changes}


@dataclass(frozen=True)
class Both:
    forward: Forward
    reference: Any
    config: dict[str, Any]
    folder: Path

    def reader(self, modality: Any = "image") -> MediaReader[Any]:
        checkpoint = open_checkpoint(self.folder, offline=True)
        family = discover().family_for(checkpoint)
        reader = family.media(self.forward.config, checkpoint).get(modality)
        assert reader is not None
        return reader


def load(folder: Path, config: dict[str, Any], preprocessing: dict[str, Any] | None = None) -> Both:
    import torch
    from transformers import AutoModelForImageTextToText

    write_reference_checkpoint(folder, config)
    show_media(
        folder,
        chat_template=template(image="<|image_pad|>", video="<|video_pad|>"),
        marks=(*MARKS, *UNUSED, *IDS),
        preprocessing=preprocessing,
    )
    reference = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    return Both(Forward(folder), reference, config, folder)


def processed(image: Picture, **settings: Any) -> Any:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessorPil,
    )

    return MiniCPMV4_6ImageProcessorPil(**settings)(image.array, return_tensors="pt")


def features(both: Both, arrays: Any, modality: Any = "image") -> NDArray[np.float32]:
    given = {name: mx.array(array) for name, array in arrays.items()}
    return np.array(both.forward.model.media_features(modality, given).hidden)


# Features.


@pytest.mark.parametrize("case", CASES)
def test_features_equal_the_references(case: str, tmp_path: Path) -> None:
    import torch

    both = load(tmp_path, seeing(**CASES[case]))
    assert isinstance(both.forward.config, VisionConfig)
    tower = both.forward.config.vision
    assert tower is not None
    rng = np.random.default_rng(0)
    side = 2**tower.merges
    grids = [(side, 3 * side), (2 * side, side), (2 * side, 2 * side), (side, 3 * side)]
    count = sum(rows * cols for rows, cols in grids)
    patches = rng.integers(0, 256, (count, 14, 14, 3), dtype=np.uint8)
    third = np.full(3, 2 / 255, np.float32)
    arrays = {
        "patches": patches, "grids": np.array(grids, np.int32),
        "scale": third, "shift": np.full(3, -1, np.float32),
    }  # fmt: skip
    pixels = patches.astype(np.float32) * (2 / 255) - 1  # (N, row, col, channel)
    packed = pixels.transpose(3, 1, 0, 2).reshape(1, 3, 14, -1)
    with torch.no_grad():
        expected = both.reference.get_image_features(
            torch.from_numpy(packed), torch.tensor(grids, dtype=torch.int32)
        ).pooler_output
    assert_close(features(both, arrays), torch.cat(expected).numpy())


@pytest.mark.parametrize("side", [2, 10, 32, 70])
def test_places_in_the_table_of_positions_equal_the_references(side: int) -> None:
    import torch
    from transformers.vision_utils import get_vision_nearest_position_ids

    for rows in range(4, 160, 4):
        grid = (rows, 164 - rows)
        expected = get_vision_nearest_position_ids(torch.tensor([grid]), side)
        assert table_places(*grid, side).tolist() == expected.tolist()


# Preprocessing.


def test_sizes_equal_the_references_for_many_images() -> None:
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
        MiniCPMV4_6ImageProcessorPil,
    )

    theirs = MiniCPMV4_6ImageProcessorPil()
    draw = random.Random(0)
    for _ in range(500):
        size = (int(10 ** draw.uniform(0.5, 3.7)), int(10 ** draw.uniform(0.5, 3.7)))
        mode = draw.choice(["16x", "4x"])
        most, resolution = draw.choice([1, 2, 4, 9, 36]), draw.choice([224, 448, 500])
        ours = slicing(
            size, resolution=resolution, unit=56 if mode == "16x" else 28, max_slices=most
        )
        grid = theirs.get_sliced_grid(size, most, resolution)
        assert ours.grid == (None if grid is None else tuple(grid))
        assert ours.overview == theirs.find_best_resize(
            size, resolution, 14, mode, allow_upscale=grid is None
        )
        if grid is not None:
            assert ours.sheet == theirs.get_refine_size(
                size, grid, resolution, 14, mode, allow_upscale=True
            )


SIZES = [(640, 480), (100, 40), (501, 333), (37, 211), (1084, 820), (300, 900), (449, 449),
         (5, 7), (777, 260), (640, 641)]  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return load(tmp_path_factory.mktemp("plain"), seeing())


@pytest.mark.parametrize("size", SIZES)
def test_pixels_equal_the_references(
    size: tuple[int, int], plain: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = picture(*size)
    reader = plain.reader()
    plan = reader.plan(image, MediaRequest())
    arrays = reader.prepare(image, plan).arrays
    resize_rows_first(monkeypatch)
    expected = processed(image)
    assert arrays["grids"].tolist() == expected["target_sizes"].tolist()
    assert plan.count == sum(h * w for h, w in expected["target_sizes"].tolist()) // 16
    pixels = arrays["patches"] * arrays["scale"] + arrays["shift"]
    packed = pixels.transpose(3, 1, 0, 2).reshape(1, 3, 14, -1)
    # One step of a byte is 2/255 here.
    assert np.abs(packed - expected["pixel_values"].numpy()).max() < 2 * 2.01 / 255


# Positions and prompts.


def encode(plan: Plan, start: int = 0, item: int = 0) -> tuple[list[int], list[MediaRun]]:
    """A plan's pieces as ids, from `start` on, and where the soft tokens are."""
    ids: list[int] = []
    runs: list[MediaRun] = []
    for piece in plan.pieces:
        if isinstance(piece, Soft):
            at = start + len(ids)
            kind: Any = "video" if piece.token == "<|video_pad|>" else "image"
            runs.append(
                MediaRun(start=at, stop=at + piece.count, modality=kind, item=item, grid=piece.grid)
            )
            ids += [IDS[piece.token]] * piece.count
            continue
        rest = piece
        while rest:
            mark = next((mark for mark in IDS if rest.startswith(mark)), None)
            ids.append(ord(rest[0]) if mark is None else IDS[mark])
            rest = rest[1 if mark is None else len(mark) :]
    return ids, runs


MARKERS = CanvasMarkers(
    image_start_id=272, image_end_id=273, slice_start_id=274, slice_end_id=275, newline_id=276
)


def random_layout(seed: int) -> tuple[list[int], list[MediaRun], dict[str, list[list[int]]]]:
    """Pictures of any grids, slices in rows that may be uneven, text or marks between."""
    draw = random.Random(seed)
    ids: list[int] = []
    runs: list[MediaRun] = []
    sizes: dict[str, list[list[int]]] = {"image": [], "video": []}

    def crop(modality: Any) -> None:
        grid = draw.randint(1, 9), draw.randint(1, 9)
        count = grid[0] * grid[1]
        runs.append(
            MediaRun(start=len(ids), stop=len(ids) + count, modality=modality, item=0, grid=grid)
        )
        sizes[modality].append([4 * grid[0], 4 * grid[1]])
        ids.extend([270 if modality == "image" else 271] * count)

    for _ in range(draw.randint(1, 5)):
        ids += draw.choices([1, 2, 3, 276], k=draw.choice([0, 0, 1, 2, 5]))
        modality = draw.choice(["image", "video"])
        ids.append(272)
        crop(modality)
        ids.append(273)
        columns = draw.randint(1, 4)
        for index in range(draw.choice([0, 0, 2, 3, 4, 6])):
            if index and index % columns == 0:
                ids.append(276)
            ids.append(274)
            crop(modality)
            ids.append(275)
    ids += draw.choices([1, 2, 3, 276], k=draw.randint(0, 4))
    return ids, runs, sizes


def test_positions_on_canvases_equal_the_references(tmp_path: Path) -> None:
    import torch

    both = load(tmp_path, seeing("4.7, untied"))
    for seed in range(300):
        ids, runs, sizes = random_layout(seed)
        kinds = [{270: 1, 271: 2}.get(token, 0) for token in ids]
        grids = [torch.tensor(sizes[name]) if sizes[name] else None for name in ("image", "video")]
        expected, delta = both.reference.model.get_rope_index(
            torch.tensor([ids]), torch.tensor([kinds]), *grids
        )
        found = canvas_positions(np.array(ids, np.int32), runs, MARKERS)
        assert found.tolist() == expected[:, 0].tolist(), seed
        assert found.max() + 1 - len(ids) == int(delta)


def packed(patches: NDArray[np.uint8]) -> NDArray[np.float32]:
    pixels = patches.astype(np.float32) * np.float32(2 / 255) - np.float32(1)
    return pixels.transpose(3, 1, 0, 2).reshape(1, 3, 14, -1)


def logits(
    both: Both, ids: Sequence[int], runs: Sequence[MediaRun], rows: mx.array
) -> NDArray[np.float32]:
    """Ours: features in the place of embeddings, positions as the model says."""
    model, count = both.forward.model, len(ids)
    layers = Allocation(tuple(model.cache_kinds()), mx.float32).layers()
    layers.reserve(count)
    layers.begin(())
    axes = model.media_positions(np.array(ids, np.int32), runs)
    step = Step(
        ids=mx.array([list(ids)], dtype=mx.int32),
        positions=mx.arange(count, dtype=mx.int32)[None] if axes is None else mx.array(axes[:1]),
        axes=None if axes is None else mx.array(axes[:, None]),
        extents=(count,),
    )
    places = mx.array([place for run in runs for place in range(run.start, run.stop)])
    hidden = model.embed(step)
    hidden[0, places] = rows
    return np.array(model.logits(model(hidden, step, layers.stores)))[0]


@pytest.mark.parametrize("name", ["4.6", "4.7, untied", "4.7 of experts"])
def test_logits_of_a_prompt_with_images_and_a_video_equal_the_references(
    name: str, tmp_path: Path
) -> None:
    both = load(tmp_path, seeing(name))
    ids = list(b"What is in ")
    runs: list[MediaRun] = []
    parts: dict[str, list[Any]] = {"image": [], "video": []}
    rows: list[mx.array] = []
    frames = np.stack([picture(160, 120, seed).array for seed in range(9)])
    items: list[tuple[Any, Any]] = [
        ("image", picture(640, 480)), ("image", picture(120, 60)), ("video", film(frames, 4.0)),
        ("image", picture(700, 700)),
    ]  # fmt: skip
    for number, (modality, item) in enumerate(items):
        reader = both.reader(modality)
        plan = reader.plan(item, MediaRequest(number=number if modality == "image" else 0))
        arrays = reader.prepare(item, plan).arrays
        more, placed = encode(plan, len(ids), number)
        ids += more
        runs += placed
        parts[modality].append(arrays)
        rows.append(mx.array(features(both, arrays, modality)))
        ids += list(b" and ")
    expected = reference_logits(both, ids, parts)
    assert_close(logits(both, ids, runs, mx.concatenate(rows)), expected)


def reference_logits(
    both: Both, ids: Sequence[int], parts: dict[str, list[Any]]
) -> NDArray[np.float32]:
    """The reference's logits `[T, V]`, of the arrays of images and of videos."""
    import torch

    given = {
        key: torch.from_numpy(np.concatenate([make(arrays) for arrays in parts[kind]], axis=axis))
        for kind, suffix in (("image", ""), ("video", "_videos"))
        for key, make, axis in (
            (f"pixel_values{suffix}", lambda arrays: packed(arrays["patches"]), -1),
            (f"target_sizes{suffix}", lambda arrays: arrays["grids"], 0),
        )
    }
    if both.config["model_type"] != "minicpmv4_6":
        kinds = [{270: 1, 271: 2}.get(token, 0) for token in ids]
        given["mm_token_type_ids"] = torch.tensor([kinds])
    with torch.no_grad():
        return both.reference(torch.tensor([list(ids)]), **given).logits[0].numpy()


MIXED: list[tuple[str, dict[str, Any]]] = [
    ("4.6", {}), ("4.6", {"downsample_mode": "4x"}), ("4.7, untied", {}), ("4.7 of experts", {}),
]  # fmt: skip


@pytest.fixture(scope="module", params=MIXED, ids=lambda case: " ".join([case[0], *case[1]]))
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    name, changes = request.param
    files = {"preprocessor_config.json": {"scale_resolution": 56}}
    both = load(tmp_path_factory.mktemp("mixed"), seeing(name, **changes), files)

    def logits(ids: Sequence[int], items: Sequence[MediaItem]) -> NDArray[np.float32]:
        parts: dict[str, list[Any]] = {"image": [], "video": []}
        for item in items:
            parts[item.modality].append(item.arrays)
        return reference_logits(both, ids, parts)

    with beside(both.folder, logits) as found:
        yield found


class TestMixedPrompt(MediaParity):
    def test_one_of_the_pictures_is_read_in_slices(self, mixed: Mixed) -> None:
        assert len(mixed.prompt.media[1].runs) > 2


def film(frames: NDArray[np.uint8], fps: float) -> VideoClip:
    return Footage(
        len(frames),
        (frames.shape[2], frames.shape[1]),
        fps,
        draw=lambda place: frames[place].copy(),
    ).clip


def test_a_config_as_transformers_writes_it_is_read_the_same(tmp_path: Path) -> None:
    both = load(tmp_path, seeing("4.7, untied"))
    first = both.forward.config
    assert isinstance(first, VisionConfig)
    again = VisionConfig.read(json.loads((tmp_path / "config.resaved.json").read_text()))
    assert again.canvas == first.canvas
    assert again.vision is not None
    assert first.vision is not None
    kept = TowerConfig.model_fields
    assert again.vision.model_dump(include=set(kept)) == first.vision.model_dump(include=set(kept))
