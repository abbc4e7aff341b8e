"""Pictures, against transformers (features, logits) and torch's resize (pixels)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.checkpoint import open_checkpoint
from phyla.family import MediaRequest, Step
from phyla.media import ImageFile
from phyla.testing import MARKS, Forward, assert_close, prompt_ids, read_tiny
from phyla.testing.media_parity import MediaParity, Mixed, beside, show_media
from phyla.testing.reference import write_reference_checkpoint
from phyla.testing.sight import template
from phyla.testing.tokenizer import vocabulary_size
from phyla_families.lfm2_vl.config import Config
from phyla_families.lfm2_vl.image_reader import ImageReader
from phyla_families.lfm2_vl.image_settings import ImageSettings
from phyla_families.lfm2_vl.media import media
from phyla_families.lfm2_vl.tiling import Views, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.engine.media import MediaItem
    from phyla.family import MediaReader, Prepared

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("one_torch_thread")]

# What stands for a picture is the first of the tokens that the tokenizer has beside the usual ones.
TINY = read_tiny(Path(__file__).with_name("tiny.json"))["text of a vision model"].config
CONFIG = {**TINY, "image_token_id": vocabulary_size(MARKS) - 1}
PLACES = (
    "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>",
    *[f"<|img_row_{row}_col_{column}|>" for row in (1, 2) for column in (1, 2, 3)],
)  # fmt: skip
DEEPER = {**CONFIG["vision_config"], "num_hidden_layers": 2}
BRANCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "layer norm": {"projector_use_layernorm": True},
    "no bias": {"projector_bias": False},
    "two layers, squares of four": {"vision_config": DEEPER, "downsample_factor": 4},
    "a smaller table": {"vision_config": {**DEEPER, "num_patches": 64, "layer_norm_eps": 1e-3}},
}
SIZES = [(640, 480), (100, 40), (1000, 3000)]


def noise(width: int, height: int) -> ImageFile:
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    return ImageFile((width, height), lambda: pixels)


def photo(width: int, height: int) -> ImageFile:
    """Smooth, with edges."""
    across, down = np.arange(width) / width, np.arange(height)[:, None] / height
    waves = [
        np.sin(20 * across * f + 9 * down) + (across * f % 0.3 > down % 0.4) for f in (1, 2, 5)
    ]
    pixels = np.stack(waves, axis=-1)
    pixels = 255 * (pixels - pixels.min()) / np.ptp(pixels)
    return ImageFile((width, height), lambda: pixels.astype(np.uint8))


@pytest.fixture(scope="module", params=list(BRANCHES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {**CONFIG, **BRANCHES[request.param]}
    return write_reference_checkpoint(tmp_path_factory.mktemp("pair") / "tiny", config)


@pytest.fixture
def forward(folder: Path) -> Forward:
    return Forward(folder)


@pytest.fixture
def reader(folder: Path, forward: Forward) -> MediaReader[ImageFile]:
    assert isinstance(forward.config, Config)
    reader = media(forward.config, open_checkpoint(folder, offline=True)).image
    assert reader is not None
    return reader


@pytest.fixture
def reference(folder: Path) -> Any:
    return reference_model(folder)


def reference_model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def prepared(reader: MediaReader[ImageFile], size: tuple[int, int]) -> Prepared:
    picture = noise(*size)
    return reader.prepare(picture, reader.plan(picture, MediaRequest()))


def inputs(items: Sequence[Prepared | MediaItem]) -> dict[str, Any]:
    """The arguments of the reference: views padded to one length, with masks."""
    import torch

    shapes = np.concatenate([item.arrays["shapes"] for item in items])
    patches = np.concatenate([item.arrays["patches"] for item in items]).astype(np.float32)
    longest = int(shapes.prod(axis=1).max())
    values = np.zeros((len(shapes), longest, 768), np.float32)
    mask = np.zeros((len(shapes), longest), np.int64)
    start = 0
    for index, (rows, columns) in enumerate(shapes.tolist()):
        count = rows * columns
        values[index, :count] = (patches[start : start + count] / 255 - 0.5) / 0.5
        mask[index, :count] = 1
        start += count
    return {
        "pixel_values": torch.tensor(values),
        "spatial_shapes": torch.tensor(shapes.astype(np.int64)),
        "pixel_attention_mask": torch.tensor(mask),
    }


def ours(forward: Forward, item: Prepared) -> mx.array:
    arrays: Mapping[str, mx.array] = {k: mx.array(v) for k, v in item.arrays.items()}
    return forward.model.media_features("image", arrays).hidden


def test_features_equal_the_references(
    forward: Forward, reader: MediaReader[ImageFile], reference: Any
) -> None:
    import torch

    assert isinstance(forward.config, Config)
    sizes = SIZES if forward.config.downsample_factor == 2 else SIZES[:2]
    items = [prepared(reader, size) for size in sizes]
    with torch.no_grad():
        parts = reference.get_image_features(**inputs(items)).pooler_output
    expected = np.concatenate([part.numpy() for part in parts])
    found = np.concatenate([np.array(ours(forward, item)) for item in items])
    assert_close(found, expected)


def test_logits_after_pictures_and_text_equal_the_references(
    forward: Forward, reader: MediaReader[ImageFile], reference: Any
) -> None:
    import torch

    items = [prepared(reader, size) for size in SIZES[:2]]
    rows = [ours(forward, item) for item in items]
    image = CONFIG["image_token_id"]
    text = [[token for token in prompt_ids(12, seed=seed) if token != image] for seed in range(3)]
    ids, given = [*text[0]], [embedded(forward, text[0])]
    for words, soft in zip(text[1:], rows, strict=True):
        ids += [image] * len(soft) + words
        given += [soft, embedded(forward, words)]
    cursor = forward.cursor(len(ids))
    found = cursor.feed(ids, last=True, embeddings=mx.concatenate(given))
    with torch.no_grad():
        out = reference(torch.tensor([ids]), **inputs(items))
    assert found is not None
    assert_close(np.array(found), out.logits[0, -1].numpy())


@pytest.fixture(scope="module")
def mixed(folder: Path) -> Iterator[Mixed]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tile = 64
    token = 16 * config["downsample_factor"]
    show_media(
        folder,
        chat_template=template(image="<image>"),
        marks=(*MARKS, *PLACES),
        preprocessing={
            "preprocessor_config.json": {
                "tile_size": tile,
                "min_image_tokens": 2,
                "max_image_tokens": 4,
                # What is larger than a tile is cut.
                "max_pixels_tolerance": tile**2 / (4 * token**2),
            }
        },
    )
    model = reference_model(folder)

    def logits(ids: Sequence[int], items: Sequence[MediaItem]) -> NDArray[np.float32]:
        import torch

        with torch.no_grad():
            return model(torch.tensor([list(ids)]), **inputs(items)).logits[0].numpy()

    with beside(folder, logits) as both:
        yield both


class TestMixedPrompt(MediaParity):
    def test_one_of_the_pictures_is_read_in_tiles(self, mixed: Mixed) -> None:
        assert [len(placed.runs) for placed in mixed.prompt.media] == [1, 7]


def embedded(forward: Forward, ids: list[int]) -> mx.array:
    step = Step(ids=mx.array([ids]), positions=mx.zeros((1, len(ids)), mx.int32), extents=(1,))
    return forward.model.embed(step)[0]


@pytest.mark.parametrize("resample", [2, 3])
@pytest.mark.parametrize(
    "size",
    [(640, 480), (333, 77), (70, 260), (259, 1001), (1500, 40), (31, 33), (801, 799), (1023, 767),
     (2001, 301), (5, 5)],
)  # fmt: skip
def test_pixels_equal_torchs_antialiased_resize(size: tuple[int, int], resample: int) -> None:
    settings = ImageSettings(downsample_factor=2, encoder_patch_size=16, resample=resample)
    reader = ImageReader(settings)
    for picture in (noise(*size), photo(*size)):
        plan = reader.plan(picture, MediaRequest())
        views = plan.layout
        assert isinstance(views, Views)
        assert views.whole is not None
        expected = [torch_resize(picture.pixels(), views.whole, resample)]
        if views.tiles:
            canvas = torch_resize(
                picture.pixels(), (512 * views.rows, 512 * views.columns), resample
            )
            expected[:0] = [
                tile
                for row in np.split(canvas, views.rows)
                for tile in np.split(row, views.columns, axis=1)
            ]
        found = [pixels for _, pixels in reader.prepare(picture, plan).views()]
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert np.abs(one.astype(int) - other).max() <= 2


def torch_resize(
    pixels: NDArray[np.uint8], size: tuple[int, int], resample: int
) -> NDArray[np.int64]:
    """What torchvision does with pictures of bytes."""
    import torch

    mode = {2: "bilinear", 3: "bicubic"}[resample]
    out = torch.nn.functional.interpolate(
        torch.tensor(pixels).permute(2, 0, 1)[None], size, mode=mode, antialias=True
    )
    return out[0].permute(1, 2, 0).numpy().astype(np.int64)


@dataclass(frozen=True)
class Sized:
    """A picture of mlx-vlm's processor that has a size and nothing else."""

    size: tuple[int, int]

    def resize(self, size: tuple[int, int], resample: object) -> Sized:
        return Sized(size)

    def crop(self, box: tuple[int, int, int, int]) -> Sized:
        return Sized((box[2] - box[0], box[3] - box[1]))


def test_sizes_equal_the_references_on_random_pictures() -> None:
    """By mlx-vlm, whose processor has transformers' sizes and needs no torchvision."""
    from mlx_vlm.models.lfm2_vl.processing_lfm2_vl import Lfm2VlNumpyImageProcessor

    settings = ImageSettings(downsample_factor=2, encoder_patch_size=16)
    theirs: Any = Lfm2VlNumpyImageProcessor()
    rng = np.random.default_rng(0)
    evenly, widely = rng.integers(1, 4000, (250, 2)), np.exp(rng.uniform(2, 7.3, (250, 2)))
    for width, height in np.concatenate([evenly, widely]).astype(int).tolist():
        views, rows, columns, whole = theirs._views_for_image(
            Sized((width, height)), True, 2, 10, True
        )
        found = lay_out(width, height, settings)
        assert found == Views(rows, columns, whole)
        count = sum(each.size[0] * each.size[1] for each in views) // 1024
        assert found.tokens(settings) == count
