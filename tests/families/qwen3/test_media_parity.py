"""Pictures and videos, beside transformers: sizes, pixels, features, positions, logits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.layers import Allocation
from phyla.family import Features, MediaRequest, MediaRun, Plan, Prepared, Soft, Step
from phyla.testing import MARKS, Forward, assert_close, prompt_ids, read_tiny, write_files
from phyla.testing.footage import Footage
from phyla.testing.media_parity import (
    MediaParity,
    Mixed,
    beside,
    resize_rows_first,
    show_media,
)
from phyla.testing.reference import random_tensors, tensor_shapes
from phyla.testing.sight import template
from phyla_families.qwen3.image_reader import ImageReader
from phyla_families.qwen3.preprocessing import ImageSettings, VideoSettings
from phyla_families.qwen3.video_reader import VideoReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import MediaItem
    from phyla.media import VideoClip
    from phyla.modality import Modality

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

TABLE = read_tiny(Path(__file__).with_name("media.json"))
IMAGE, VIDEO, START, END = 270, 271, 272, 273
# Their texts; those before them only take the ids up to 270.
PLACES = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
UNUSED = tuple(f"<|unused_{number}|>" for number in range(7))
SHOWN = template(
    image="<|vision_start|><|image_pad|><|vision_end|>",
    video="<|vision_start|><|video_pad|><|vision_end|>",
)
# For the tiny towers, whose soft tokens are 8 pixels wide.
SMALL_IMAGE = ImageSettings(shortest_edge=256, longest_edge=4096)  # pyright: ignore[reportCallIssue]
SMALL_VIDEO = VideoSettings(shortest_edge=256, longest_edge=8192)  # pyright: ignore[reportCallIssue]


@dataclass
class Picture:
    size: tuple[int, int]
    seed: int = 0

    def pixels(self) -> NDArray[np.uint8]:
        """Waves, with edges that ring under a wrong filter."""
        width, height = self.size
        y, x = np.mgrid[:height, :width]
        waves = [np.sin(x / (3 + c + self.seed) + y / (5 - c)) for c in range(3)]
        picture = 127.5 + 100 * np.stack(waves, axis=-1)
        picture[height // 3 : height // 2, width // 4 : width // 2] = 255
        return picture.astype(np.uint8)


def film(size: tuple[int, int], count: int, fps: float) -> VideoClip:
    return Footage(count, size, fps, draw=lambda index: Picture(size, index % 7).pixels()).clip


def image_size(item: Picture, settings: ImageSettings, block: int) -> tuple[int, int]:
    plan = ImageReader(settings, block).plan(item, MediaRequest())  # pyright: ignore[reportArgumentType]
    layout: Any = plan.layout
    assert plan.count == layout.height * layout.width // block**2
    return layout.height, layout.width


def test_pictures_get_the_references_sizes() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    generator = np.random.default_rng(0)
    sizes = np.exp(generator.uniform(0, np.log(9000), (700, 2))).astype(int).tolist()
    compared = 0
    for width, height in sizes:
        if max(width, height) > 200 * min(width, height):
            continue
        theirs = smart_resize(height, width, 32, 65536, 16777216)
        assert image_size(Picture((width, height)), ImageSettings(), 32) == theirs
        compared += 1
    assert compared > 500


@pytest.mark.parametrize("capped", [False, True])
def test_videos_get_the_references_frames_sizes_and_times(capped: bool) -> None:
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import (
        Qwen3VLVideoProcessor,
        smart_resize,
    )

    settings = VideoSettings(cap_pixels_per_frame=capped)
    reader = VideoReader(settings, 32, 2)
    generator = np.random.default_rng(1)
    them: Any = SimpleNamespace(min_frames=4, max_frames=768, fps=2)
    for _ in range(500):
        width, height = np.exp(generator.uniform(2.5, np.log(4000), 2)).astype(int).tolist()
        total = int(np.exp(generator.uniform(np.log(2), np.log(40000))))
        fps = float(generator.choice([12.5, 24, 25, 29.97, 30, 60, 1.5]))
        if max(width, height) > 200 * min(width, height):
            continue
        clip = film((width, height), total, fps)
        plan = reader.plan(clip, MediaRequest())
        layout: Any = plan.layout
        metadata: Any = SimpleNamespace(total_num_frames=total, fps=fps)
        indices = Qwen3VLVideoProcessor.sample_frames(them, metadata)
        assert list(layout.indices) == indices.tolist()
        count, most = len(indices), settings.most_pixels
        if capped:
            share = min(768 * 32 * 32, most // count)
            most = max(share, int(settings.least_pixels * 1.05)) * count
        size = smart_resize(count, height, width, 2, 32, settings.least_pixels, most)
        assert (layout.height, layout.width) == size
        times = Qwen3VLProcessor._calculate_timestamps(them, indices, fps, 2)
        texts = [piece for piece in plan.pieces if isinstance(piece, str)]
        assert texts[::2] == [f"<{time:.1f} seconds><|vision_start|>" for time in times]


SIZES = [(640, 480), (33, 47), (301, 31), (31, 301), (100, 100), (257, 255), (777, 333),
         (1, 150), (64, 64), (1023, 77)]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_the_references(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    picture: Any = Picture(size)
    reader = ImageReader(ImageSettings(), 32)
    plan = reader.plan(picture, MediaRequest())
    prepared = reader.prepare(picture, plan)
    resize_rows_first(monkeypatch)
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 65536, "longest_edge": 16777216},
        patch_size=16,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    theirs = processor(images=Image.fromarray(picture.pixels()), return_tensors="np")
    assert theirs["image_grid_thw"][0].prod() // 4 == plan.count
    scaled = prepared.arrays["frames"][0] * prepared.arrays["scale"] + prepared.arrays["shift"]
    layout: Any = plan.layout
    rows, columns = layout.height // 32, layout.width // 32
    blocks = scaled.reshape(rows, 2, 16, columns, 2, 16, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    expected = theirs["pixel_values"].reshape(-1, 3, 2, 16, 16)
    assert np.abs(blocks.reshape(-1, 3, 16, 16) - expected[:, :, 0]).max() <= 1e-6
    assert (expected[:, :, 0] == expected[:, :, 1]).all()


@dataclass
class Item:
    """A picture or a video: as we prepare it, and what transformers takes for it."""

    modality: Modality
    plan: Plan
    prepared: Prepared

    @classmethod
    def image(cls, size: tuple[int, int], seed: int = 0) -> Item:
        reader, picture = ImageReader(SMALL_IMAGE, 8), Picture(size, seed)
        plan = reader.plan(picture, MediaRequest())  # pyright: ignore[reportArgumentType]
        return cls("image", plan, reader.prepare(picture, plan))  # pyright: ignore[reportArgumentType]

    @classmethod
    def video(cls, size: tuple[int, int], count: int) -> Item:
        reader, clip = VideoReader(SMALL_VIDEO, 8, 2), film(size, count, 4.0)
        plan = reader.plan(clip, MediaRequest())  # pyright: ignore[reportArgumentType]
        return cls("video", plan, reader.prepare(clip, plan))  # pyright: ignore[reportArgumentType]

    @property
    def token(self) -> int:
        return IMAGE if self.modality == "image" else VIDEO

    @property
    def patches(self) -> tuple[NDArray[np.float32], list[int]]:
        """`pixel_values` and the grid."""
        return patches(self.prepared.arrays)


def patches(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float32], list[int]]:
    """`pixel_values` and the grid, cut as transformers' processors do it."""
    frames = arrays["frames"] * arrays["scale"] + arrays["shift"]
    if len(frames) % 2:
        frames = np.concatenate([frames, frames[-1:]])
    count, height, width, _ = frames.shape
    cut = frames.reshape(count // 2, 2, height // 8, 2, 4, width // 8, 2, 4, 3)
    ordered = cut.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
    return ordered.reshape(-1, 96), [count // 2, height // 4, width // 4]


@dataclass
class Pair:
    folder: Path
    forward: Forward
    reference: Any

    def logits(
        self, ids: Sequence[int], seen: Sequence[tuple[Modality, Mapping[str, NDArray[Any]]]]
    ) -> NDArray[np.float32]:
        """The reference's logits `[T, V]`, of pictures and videos as we prepare them."""
        import torch

        kinds = [{IMAGE: 1, VIDEO: 2}.get(token, 0) for token in ids]
        with torch.no_grad():
            return (
                self.reference(
                    input_ids=torch.tensor([list(ids)]),
                    mm_token_type_ids=torch.tensor([kinds], dtype=torch.int32),
                    **reference_inputs(seen),
                )
                .logits[0]
                .numpy()
            )


@pytest.fixture(scope="module", params=list(TABLE))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    folder = tmp_path_factory.mktemp("pair") / "tiny"
    config = dict(TABLE[request.param].config)
    keys = {key: value for key, value in config.items() if key != "model_type"}
    known = AutoConfig.for_model(config["model_type"], **keys)
    AutoModelForImageTextToText.from_config(known).save_pretrained(folder)
    tensors = random_tensors(tensor_shapes(folder), seed=0, dtype="float32")
    write_files(folder, config, tensors)
    pixels = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
    size = {"shortest_edge": 256, "longest_edge": 4096}
    show_media(
        folder,
        chat_template=SHOWN,
        marks=(*MARKS, *UNUSED, *PLACES),
        preprocessing={
            "preprocessor_config.json": {"size": size, **pixels},
            "video_preprocessor_config.json": {"size": size, **pixels},
        },
    )
    reference = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return Pair(folder, Forward(folder), reference.eval())


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return [Item.image((50, 30)), Item.video((40, 25), 9), Item.image((21, 60), 2)]


def features(pair: Pair, item: Item) -> Features:
    arrays = {name: mx.array(array) for name, array in item.prepared.arrays.items()}
    return pair.forward.model.media_features(item.modality, arrays)


def test_features_are_the_references(pair: Pair, items: list[Item]) -> None:
    import torch

    tower = pair.reference.model.visual
    for item in items:
        found = features(pair, item)
        assert found.hidden.shape == (item.plan.count, 64)
        pixels, grid = item.patches
        with torch.no_grad():
            expected = tower(torch.tensor(pixels), grid_thw=torch.tensor([grid]))
        assert_close(np.array(found.hidden), expected.pooler_output.numpy())
        deep = getattr(expected, "deepstack_features", None) or []
        assert len(found.deep) == len(deep)
        for ours, theirs in zip(found.deep, deep, strict=True):
            assert_close(np.array(ours), theirs.numpy())


def test_features_of_a_video_are_not_mixed_in_time(pair: Pair) -> None:
    item = Item.video((40, 25), 9)
    arrays = {name: mx.array(array) for name, array in item.prepared.arrays.items()}
    assert len(item.prepared.arrays["frames"]) > 2
    alone = pair.forward.model.media_features("video", {**arrays, "frames": arrays["frames"][:2]})
    count = alone.hidden.shape[0]
    assert_close(np.array(alone.hidden), np.array(features(pair, item).hidden[:count]))


def prompt(items: Sequence[Item]) -> tuple[list[int], list[MediaRun], list[int]]:
    """Ids with text around the items, their runs, and transformers' type of each token."""
    text = itertools.cycle(prompt_ids(50))
    ids = [next(text) for _ in range(5)]
    runs: list[MediaRun] = []
    for number, item in enumerate(items):
        for piece in item.plan.pieces:
            if isinstance(piece, Soft):
                start = len(ids) + 1
                stop = start + piece.count
                runs.append(MediaRun(start=start, stop=stop, modality=item.modality,
                                     item=number, grid=piece.grid))  # fmt: skip
                ids += [START, *[item.token] * piece.count, END, next(text)]
        ids += [next(text) for _ in range(3)]
    kinds = {IMAGE: 1, VIDEO: 2}
    return ids, runs, [kinds.get(token, 0) for token in ids]


def reference_inputs(
    seen: Sequence[tuple[Modality, Mapping[str, NDArray[Any]]]],
) -> dict[str, Any]:
    import torch

    inputs: dict[str, Any] = {}
    for modality, values, grids in (
        ("image", "pixel_values", "image_grid_thw"),
        ("video", "pixel_values_videos", "video_grid_thw"),
    ):
        chosen = [patches(arrays) for kind, arrays in seen if kind == modality]
        if chosen:
            inputs[values] = torch.tensor(np.concatenate([pixels for pixels, _ in chosen]))
            inputs[grids] = torch.tensor([grid for _, grid in chosen])
    return inputs


def as_seen(items: Sequence[Item]) -> list[tuple[Modality, Mapping[str, NDArray[Any]]]]:
    return [(item.modality, item.prepared.arrays) for item in items]


def test_positions_are_the_references(pair: Pair, items: list[Item]) -> None:
    import torch

    ids, runs, kinds = prompt(items)
    inputs = reference_inputs(as_seen(items))
    expected, delta = pair.reference.model.get_rope_index(
        torch.tensor([ids]),
        mm_token_type_ids=torch.tensor([kinds], dtype=torch.int32),
        image_grid_thw=inputs.get("image_grid_thw"),
        video_grid_thw=inputs.get("video_grid_thw"),
    )
    found = pair.forward.model.media_positions(np.array(ids, np.int32), runs)
    assert found is not None
    assert (found == expected[:, 0].numpy()).all()
    assert found.max() + 1 - len(ids) == delta.item()


def our_logits(
    pair: Pair, ids: list[int], runs: list[MediaRun], items: Sequence[Item], extra: list[int]
) -> NDArray[np.float32]:
    """A prompt with media in one go, then tokens one by one; logits of all."""
    model = pair.forward.model
    layers = Allocation(tuple(model.cache_kinds()), mx.float32).layers()
    layers.reserve(len(ids) + len(extra))
    places = model.media_positions(np.array(ids, np.int32), runs)
    assert places is not None
    extents = (len(ids) + len(extra),)
    step = Step(
        ids=mx.array([ids]),
        positions=mx.array(places[:1]),
        axes=mx.array(places[:, None]),
        extents=extents,
    )
    found = [features(pair, item) for item in items]
    soft = mx.array([place for run in runs for place in range(run.start, run.stop)])
    hidden = model.embed(step)
    hidden[0, soft] = mx.concatenate([each.hidden for each in found])
    deep: list[mx.array] = []
    for level in range(len(found[0].deep)):
        added = mx.zeros_like(hidden)
        added[0, soft] = mx.concatenate([each.deep[level] for each in found])
        deep.append(added)
    step = Step(ids=step.ids, positions=step.positions, axes=step.axes, extents=extents,
                deep=tuple(deep))  # fmt: skip
    rows = [model.logits(model(hidden, step, layers.stores))[0]]
    for number, token in enumerate(extra):
        place = int(places.max()) + 1 + number
        step = Step(ids=mx.array([[token]]), positions=mx.array([[place]]), extents=extents)
        rows.append(model.logits(model(model.embed(step), step, layers.stores))[0])
    return np.array(mx.concatenate(rows))


def test_logits_after_media_are_the_references(pair: Pair, items: list[Item]) -> None:
    ids, runs, _ = prompt(items)
    extra = prompt_ids(6, seed=3)
    expected = pair.logits(ids + extra, as_seen(items))
    assert_close(our_logits(pair, ids, runs, items, extra), expected)


@pytest.fixture(scope="module")
def mixed(pair: Pair) -> Iterator[Mixed]:
    def logits(ids: Sequence[int], items: Sequence[MediaItem]) -> NDArray[np.float32]:
        return pair.logits(ids, [(item.modality, item.arrays) for item in items])

    with beside(pair.folder, logits) as both:
        yield both


class TestMixedPrompt(MediaParity):
    pass
