"""The tower of MiniCPM-V: every layout of its tensors, files without one, what it computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.checkpoint import open_checkpoint
from phyla.errors import CheckpointError, ConfigError
from phyla.registry import discover
from phyla.testing import Forward, assert_close, prompt_ids, read_tiny, write_checkpoint
from phyla.testing.files import write_files
from phyla_families.minicpm.vision import merge_order, table_places
from phyla_families.minicpm.vision_config import VisionConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Tensors = dict[str, mx.array]

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
CONFIG = dict(TABLE["4.7, untied"].config)
GRIDS = [(4, 8), (4, 4), (8, 4)]
PATCHES = "vision_tower.embeddings.patch_embedding.weight"
WINDOWS = "vision_tower.vit_merger."


def arrays(grids: list[tuple[int, int]] = GRIDS, seed: int = 0) -> dict[str, mx.array]:
    count = sum(rows * cols for rows, cols in grids)
    rng = np.random.default_rng(seed)
    return {
        "patches": mx.array(rng.integers(0, 256, (count, 14, 14, 3), dtype=np.uint8)),
        "grids": mx.array(np.array(grids, np.int32)),
        "scale": mx.full((3,), 2 / 255),
        "shift": mx.full((3,), -1.0),
    }


def features(folder: Path, given: dict[str, mx.array] | None = None) -> NDArray[np.float32]:
    return np.array(Forward(folder).model.media_features("image", given or arrays()).hidden)


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Tensors:
    folder = write_checkpoint(tmp_path_factory.mktemp("own"), CONFIG)
    found = mx.load(str(folder / "model.safetensors"))
    assert isinstance(found, dict)
    return found


def is_sight(name: str) -> bool:
    return name.startswith(("vision_tower.", "merger."))


def published(tensors: Tensors) -> Tensors:
    return {
        f"model.{name}" if is_sight(name)
        else name if name.startswith("lm_head") else f"model.language_model.{name}":
        tensor.transpose(0, 3, 1, 2) if name == PATCHES else tensor
        for name, tensor in tensors.items()
    }  # fmt: skip


def conversion(tensors: Tensors) -> Tensors:
    return {
        name.replace(WINDOWS, "vit_merger.") if is_sight(name)
        else f"language_model.{name}" if name.startswith("lm_head")
        else f"language_model.model.{name}": tensor
        for name, tensor in tensors.items()
    }  # fmt: skip


def older(tensors: Tensors) -> Tensors:
    return {
        name.replace("vision_tower.", "vpm.") if is_sight(name)
        else f"llm.{name}" if name.startswith("lm_head") else f"llm.model.{name}":
        tensor.transpose(0, 3, 1, 2) if name == PATCHES else tensor
        for name, tensor in tensors.items()
    }  # fmt: skip


@pytest.mark.parametrize("layout", [dict, published, conversion, older])
def test_every_layout_of_the_tower_gives_the_same(
    layout: Callable[[Tensors], Tensors], tensors: Tensors, tmp_path: Path
) -> None:
    expected = features(write_files(tmp_path / "own", CONFIG, tensors))
    assert expected.shape == (sum(rows * cols for rows, cols in GRIDS) // 16, 64)
    assert_close(
        features(write_files(tmp_path / "laid out", CONFIG, layout(tensors))), expected,
        tolerance=1e-6,
    )  # fmt: skip


def test_a_packed_tower_gives_nearly_the_same(tmp_path: Path) -> None:
    plain = features(write_checkpoint(tmp_path / "plain", CONFIG))
    packed = write_checkpoint(tmp_path / "packed", CONFIG, quantize={"bits": 8, "group_size": 32})
    given = arrays()
    found = Forward(packed, dtype="stored").model.media_features("video", given).hidden
    assert_close(np.array(found), plain, tolerance=0.05)


def test_a_file_without_a_tower_is_read_as_text(tensors: Tensors, tmp_path: Path) -> None:
    text = {name: tensor for name, tensor in tensors.items() if not is_sight(name)}
    folder = write_files(tmp_path / "text", CONFIG, text)
    checkpoint = open_checkpoint(folder, offline=True)
    family = discover().family_for(checkpoint)
    config = family.config.read(CONFIG).settle(checkpoint)
    assert isinstance(config, VisionConfig)
    assert config.vision is None
    readers = family.media(config, checkpoint)
    assert readers.image is readers.video is readers.audio is None
    prompt = prompt_ids(20)
    seeing = Forward(write_files(tmp_path / "all", CONFIG, tensors))
    assert_close(Forward(folder).logits(prompt), seeing.logits(prompt), tolerance=1e-6)
    with pytest.raises(NotImplementedError, match="image"):
        Forward(folder).model.media_features("image", arrays())
    with pytest.raises(NotImplementedError, match="audio"):
        seeing.model.media_features("audio", {})


def test_half_a_tower_is_an_error(tensors: Tensors, tmp_path: Path) -> None:
    half = {name: tensor for name, tensor in tensors.items() if not name.startswith("merger.")}
    with pytest.raises(CheckpointError, match=r"merger\.mlp"):
        Forward(write_files(tmp_path, CONFIG, half))


def test_a_picture_looks_the_same_beside_others(tmp_path: Path, monkeypatch: Any) -> None:
    model = Forward(write_checkpoint(tmp_path, CONFIG)).model
    given = arrays()
    together = np.array(model.media_features("video", given).hidden)
    start, parts = 0, []
    for rows, cols in GRIDS:
        stop = start + rows * cols
        alone = {**given, "patches": given["patches"][start:stop]}
        alone["grids"] = mx.array([[rows, cols]])
        parts.append(np.array(model.media_features("video", alone).hidden))
        start = stop
    assert_close(together, np.concatenate(parts), tolerance=1e-5)
    # Many pictures go through the tower few by few.
    monkeypatch.setattr("phyla_families.minicpm.vision_model._AT_ONCE", 40)
    assert_close(np.array(model.media_features("video", given).hidden), together, tolerance=1e-5)


def test_soft_tokens_stand_row_by_row(tmp_path: Path) -> None:
    """What changes in one square of patches changes most in its own soft token."""
    model = Forward(write_checkpoint(tmp_path, CONFIG)).model
    given = arrays([(8, 12)])
    before = np.array(model.media_features("image", given).hidden)
    assert before.shape[0] == 2 * 3
    for token in range(6):
        row, col = divmod(token, 3)
        pixels = np.array(given["patches"]).reshape(8, 12, 14, 14, 3)
        pixels[4 * row : 4 * row + 4, 4 * col : 4 * col + 4] ^= 255
        changed = {**given, "patches": mx.array(pixels.reshape(-1, 14, 14, 3))}
        after = np.array(model.media_features("image", changed).hidden)
        assert int(np.abs(after - before).sum(axis=1).argmax()) == token


def test_patches_that_are_joined_lie_side_by_side() -> None:
    assert merge_order(2, 4, 1).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    twice = merge_order(4, 8, 2)
    # The first window of the first square, the second window, ..., then the second square.
    assert twice[:8].tolist() == [0, 1, 8, 9, 2, 3, 10, 11]
    assert twice[16:20].tolist() == [4, 5, 12, 13]
    assert sorted(twice.tolist()) == list(range(32))


def test_patches_look_up_the_nearest_place_of_the_table() -> None:
    assert table_places(2, 4, 2).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table_places(1, 3, 70).tolist() == [0, 23, 46]


# config.json.


def vision(**changes: Any) -> dict[str, Any]:
    return {**CONFIG, "vision_config": {**CONFIG["vision_config"], **changes}}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (vision(hidden_size=33), "num_attention_heads"), (vision(patch_size=0), "patch_size"),
        (vision(patch_size=29), "image_size"), (vision(window_kernel_size=[3, 3]), "window_ker"),
        (vision(hidden_act="relu"), "hidden_act"), (vision(num_hidden_layers=None), "num_hidden"),
        (vision(num_channels=1), "num_channels"),
        ({**CONFIG, "insert_layer_id": 2}, "insert_layer_id"),
        ({**CONFIG, "downsample_mode": "8x"}, "downsample_mode"),
        ({**CONFIG, "merge_kernel_size": [4, 1]}, "merge_kernel_size"),
        ({**CONFIG, "merger_times": 0}, "merger_times"), ({**CONFIG, "mrope_mode": "flat"}, "mrope"),
        ({**CONFIG, "vision_config": 3}, "vision_config"),
    ],
)  # fmt: skip
def test_a_tower_that_contradicts_itself_is_named(config: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        VisionConfig.read(config)


def test_keys_outside_count_for_more_than_those_of_the_tower() -> None:
    config = VisionConfig.read({**vision(insert_layer_id=6), "insert_layer_id": 1})
    assert config.vision is not None
    assert config.vision.insert_layer_id == 1
    assert (config.vision.merges, config.vision.unit) == (2, 56)
    finer = VisionConfig.read({**CONFIG, "downsample_mode": "4x"}).vision
    assert finer is not None
    assert (finer.merges, finer.unit) == (1, 28)


def test_images_of_the_later_version_need_the_marks_ids(tensors: Tensors, tmp_path: Path) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "slice_end_id"}
    with pytest.raises(ConfigError, match="slice_end_id"):
        Forward(write_files(tmp_path / "all", config, tensors))
    text = {name: tensor for name, tensor in tensors.items() if not is_sight(name)}
    Forward(write_files(tmp_path / "text", config, text))
