"""The tower's and the projector's tensors, in every layout they are published in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from phyla.checkpoint import Checkpoint, open_checkpoint
from phyla.checkpoint.checkpoint import TensorInfo
from phyla.engine.weight_rules import place
from phyla.errors import CheckpointError
from phyla.family import MediaRequest
from phyla.media import ImageFile
from phyla.testing import (
    Forward,
    assert_close,
    prompt_ids,
    read_tiny,
    write_checkpoint,
    write_files,
)
from phyla_families.lfm2_vl.config import Config
from phyla_families.lfm2_vl.media import media
from phyla_families.lfm2_vl.model import build
from phyla_families.lfm2_vl.vision import resizing
from phyla_families.lfm2_vl.weights import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

CONFIG = read_tiny(Path(__file__).with_name("tiny.json"))["text of a vision model"].config
NORMED = {**CONFIG, "projector_use_layernorm": True}
TOWER = ("vision_tower.", "multi_modal_projector.")
# Small tiles, for speed.
SETTINGS = {"tile_size": 128, "min_image_tokens": 4, "max_image_tokens": 16}
Tensors = dict[str, mx.array]


def picture(width: int = 192, height: int = 208) -> ImageFile:
    """Coloured stripes, cut into four tiles."""
    across, down = np.arange(width), np.arange(height)[:, None]
    pixels = np.stack(
        [(across + 2 * down) % 256, (3 * across + down) % 251, (across * down // 64) % 256], axis=-1
    )
    return ImageFile((width, height), lambda: pixels.astype(np.uint8))


def features(folder: Path, *, dtype: str = "float32") -> NDArray[np.float32]:
    """What the tower makes of the picture, `[N, D]`."""
    (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    forward = Forward(folder, dtype=dtype)
    assert isinstance(forward.config, Config)
    reader = media(forward.config, open_checkpoint(folder, offline=True)).image
    assert reader is not None
    plan = reader.plan(picture(), MediaRequest())
    arrays = reader.prepare(picture(), plan).arrays
    made = forward.model.media_features("image", {k: mx.array(v) for k, v in arrays.items()})
    assert made.hidden.shape[0] == plan.count
    assert not made.deep
    return np.array(made.hidden.astype(mx.float32))


def written(config: Mapping[str, Any], folder: Path) -> Tensors:
    """A checkpoint's tensors under the model's own names."""
    write_checkpoint(folder, config)
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors


def renamed(name: str, text: str, prefix: str, level: str) -> str:
    if not name.startswith(TOWER):
        return text + name
    name = re.sub(r"^vision_tower\.layers", "vision_tower.encoder.layers", name)
    return prefix + name.replace("vision_tower.", f"vision_tower.{level}", 1)


def hugging_face(tensors: Tensors) -> Tensors:
    return {renamed(n, "model.language_model.", "model.", ""): t for n, t in tensors.items()}


def published(tensors: Tensors) -> Tensors:
    """As the first releases have it, with a pooling head that is not used."""
    named = {
        renamed(n, "model.language_model.", "model.", "vision_model."): t
        for n, t in tensors.items()
    }
    head = "model.vision_tower.vision_model.head"
    return {**named, f"{head}.probe": mx.zeros((1, 1, 32)), f"{head}.layernorm.bias": mx.zeros(32)}


def mlx_conversion(tensors: Tensors) -> Tensors:
    return {renamed(n, "language_model.model.", "", ""): t for n, t in tensors.items()}


@pytest.mark.parametrize("config", [CONFIG, NORMED], ids=["plain", "layer norm"])
@pytest.mark.parametrize(
    ("layout", "model_type"),
    [(hugging_face, "lfm2_vl"), (published, "lfm2_vl"), (mlx_conversion, "lfm2-vl")],
)
def test_every_layout_gives_the_same(
    config: dict[str, Any],
    layout: Callable[[Tensors], Tensors],
    model_type: str,
    tmp_path: Path,
) -> None:
    tensors = written(config, tmp_path / "own")
    expected = features(tmp_path / "own")
    other = {**config, "model_type": model_type}
    folder = write_files(tmp_path / "other", other, layout(tensors))
    assert_close(features(folder), expected)
    prompt = prompt_ids(9)
    assert_close(Forward(folder).logits(prompt), Forward(tmp_path / "own").logits(prompt))


# Some features as transformers 5.24 computes them in float32 from the same weights and patches.
ROWS, COLUMNS = [0, 17, 63, 64, 75], [0, 31, 63]
GOLDEN = {
    "plain": [
        [0.74121, -0.96867, 0.5067],
        [1.04949, -0.46918, -0.08244],
        [1.86245, -0.81054, -1.24944],
        [0.97444, -1.20111, 0.32106],
        [-0.01608, 0.16988, 0.09701],
    ],
    "layer norm": [
        [0.48782, -0.91732, 0.24192],
        [0.99492, -0.56148, -0.15653],
        [1.20839, -0.84093, -1.00916],
        [0.84788, -1.27501, 0.12812],
        [0.3381, -0.07108, 0.12378],
    ],
}


@pytest.mark.parametrize("config", [CONFIG, NORMED], ids=["plain", "layer norm"])
def test_features_are_the_references(config: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(tmp_path, config)
    found = features(tmp_path)
    golden = GOLDEN["layer norm" if config is NORMED else "plain"]
    assert found.shape == (76, 64)
    np.testing.assert_allclose(found[ROWS][:, COLUMNS], golden, rtol=0, atol=1e-4)


def test_the_projectors_norm_is_there_if_the_file_holds_it(tmp_path: Path) -> None:
    silent = {key: value for key, value in CONFIG.items() if key != "projector_use_layernorm"}
    normed = written(NORMED, tmp_path / "normed")
    plain = {name: tensor for name, tensor in normed.items() if "projector.layer_norm" not in name}
    for tensors, config in ((normed, NORMED), (plain, CONFIG)):
        folder = write_files(tmp_path / "silent", silent, tensors)
        asked = write_files(tmp_path / "asked", config, tensors)
        assert_close(features(folder), features(asked))


def test_a_norm_that_the_config_denies_is_left_out(tmp_path: Path) -> None:
    normed = written(NORMED, tmp_path / "normed")
    plain = {name: tensor for name, tensor in normed.items() if "projector.layer_norm" not in name}
    denied = write_files(tmp_path / "denied", CONFIG, normed)
    without = write_files(tmp_path / "without", CONFIG, plain)
    assert_close(features(denied), features(without))


def test_a_norm_that_the_config_promises_must_be_there(tmp_path: Path) -> None:
    tensors = written(CONFIG, tmp_path / "plain")
    folder = write_files(tmp_path / "promised", NORMED, tensors)
    with pytest.raises(CheckpointError, match=r"multi_modal_projector\.layer_norm"):
        Forward(folder)


def test_a_conversion_for_text_alone_loads_and_reads_no_pictures(tmp_path: Path) -> None:
    tensors = written(NORMED, tmp_path / "own")
    text = {name: each for name, each in tensors.items() if not name.startswith(TOWER)}
    folder = write_files(tmp_path / "text", NORMED, mlx_conversion(text))
    prompt = prompt_ids(9)
    forward = Forward(folder)
    assert_close(forward.logits(prompt), Forward(tmp_path / "own").logits(prompt))
    assert isinstance(forward.config, Config)
    assert media(forward.config, open_checkpoint(folder, offline=True)).image is None
    with pytest.raises(NotImplementedError, match="image"):
        forward.model.media_features("image", {})


def test_a_tower_with_a_tensor_missing_is_refused(tmp_path: Path) -> None:
    tensors = written(CONFIG, tmp_path / "own")
    del tensors["vision_tower.layers.0.mlp.fc1.bias"]
    folder = write_files(tmp_path / "torn", CONFIG, tensors)
    with pytest.raises(CheckpointError, match=r"mlp\.fc1\.bias"):
        Forward(folder)


def test_there_is_no_tower_for_sound(tmp_path: Path) -> None:
    forward = Forward(write_checkpoint(tmp_path, CONFIG))
    with pytest.raises(NotImplementedError, match="audio"):
        forward.model.media_features("audio", {})


@pytest.mark.parametrize("dtype", ["stored", "float32"])
def test_a_quantized_tower_is_near_the_plain_one(dtype: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "plain", CONFIG)
    folder = write_checkpoint(tmp_path / "packed", CONFIG, quantize={"group_size": 32, "bits": 8})
    expected = features(tmp_path / "plain")
    assert_close(features(folder, dtype=dtype), expected, tolerance=0.03)


def test_features_are_in_the_activations_type(tmp_path: Path) -> None:
    forward = Forward(write_checkpoint(tmp_path, CONFIG, dtype="bfloat16"), dtype="bfloat16")
    assert isinstance(forward.config, Config)
    arrays = {
        "patches": mx.zeros((4, 768), mx.uint8), "shapes": mx.array([[2, 2]]),
        "scale": mx.array([2 / 255] * 3), "shift": mx.array([-1.0] * 3),
    }  # fmt: skip
    assert forward.model.media_features("image", arrays).hidden.dtype == mx.bfloat16


def test_each_view_is_read_by_itself(tmp_path: Path) -> None:
    forward = Forward(write_checkpoint(tmp_path, NORMED))
    whole = {"scale": mx.array([2 / 255] * 3), "shift": mx.array([-1.0] * 3)}
    shapes = [(2, 4), (2, 4), (6, 2)]
    patches = np.random.default_rng(0).integers(0, 256, (28, 768), np.uint8)

    def read(start: int, stop: int, shapes: list[tuple[int, int]]) -> NDArray[np.float32]:
        arrays = {"patches": mx.array(patches[start:stop]), "shapes": mx.array(shapes)}
        return np.array(forward.model.media_features("image", {**whole, **arrays}).hidden)

    alone = [read(0, 8, shapes[:1]), read(8, 16, shapes[1:2]), read(16, 28, shapes[2:])]
    assert_close(read(0, 28, shapes), np.concatenate(alone))


def test_positions_are_resized_by_averages() -> None:
    assert np.array_equal(resizing(16, 16), np.eye(16, dtype=np.float32))
    assert np.allclose(resizing(2, 4), [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    # Half as many places: triangles four places wide, cut at the ends.
    assert np.allclose(resizing(4, 2) * 7, [[3, 3, 1, 0], [0, 1, 3, 3]])
    for new in (1, 2, 7, 26, 312):
        weights = resizing(16, new)
        assert weights.shape == (new, 16)
        assert np.allclose(weights.sum(axis=1), 1)


BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12}  # fmt: skip
LARGE = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
         "num_attention_heads": 16}  # fmt: skip


@pytest.mark.parametrize("tower", [BASE, LARGE], ids=["base", "400M"])
@pytest.mark.parametrize("normed", [False, True])
def test_a_published_tower_has_the_parameters_of_its_file(
    tower: dict[str, int], normed: bool, tmp_path: Path
) -> None:
    dim, inner = tower["hidden_size"], tower["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.patch_embedding.weight": (dim, 768), "embeddings.patch_embedding.bias": (dim,),
        "embeddings.position_embedding.weight": (256, dim),
        "post_layernorm.weight": (dim,), "post_layernorm.bias": (dim,),
    }  # fmt: skip
    for index in range(tower["num_hidden_layers"]):
        here = f"encoder.layers.{index}."
        for name in ("layer_norm1", "layer_norm2"):
            shapes |= {f"{here}{name}.weight": (dim,), f"{here}{name}.bias": (dim,)}
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            at = f"{here}self_attn.{name}"
            shapes |= {f"{at}.weight": (dim, dim), f"{at}.bias": (dim,)}
        shapes |= {f"{here}mlp.fc1.weight": (inner, dim), f"{here}mlp.fc1.bias": (inner,)}
        shapes |= {f"{here}mlp.fc2.weight": (dim, inner), f"{here}mlp.fc2.bias": (dim,)}
    shapes = {f"model.vision_tower.vision_model.{name}": shape for name, shape in shapes.items()}
    at = "model.multi_modal_projector."
    shapes |= {f"{at}linear_1.weight": (2560, 4 * dim), f"{at}linear_1.bias": (2560,)}
    shapes |= {f"{at}linear_2.weight": (64, 2560), f"{at}linear_2.bias": (64,)}
    if normed:
        shapes |= {f"{at}layer_norm.weight": (4 * dim,), f"{at}layer_norm.bias": (4 * dim,)}
    config = {
        **CONFIG, "vision_config": {"model_type": "siglip2_vision_model", **tower},
        "projector_hidden_size": 2560, "projector_use_layernorm": normed,
    }  # fmt: skip
    seen = Checkpoint(
        path=tmp_path, name="published", format="safetensors", config=config,
        generation_config={},
        tensors={name: TensorInfo(name, shape, "BF16", 0, "") for name, shape in shapes.items()},
        tokenizer=pytest.fail, chat_templates={}, quantization=None, overrides={},
        load=pytest.fail,
    )  # fmt: skip
    settled = Config.read(config).settle(seen)
    placed = place(seen.tensors, rules(settled, seen))
    every: Tensors = dict(tree_flatten(build(settled).parameters()))
    parameters = {name: each.shape for name, each in every.items() if name.startswith(TOWER)}
    assert {name: tensor.shape for name, tensor in placed.items()} == parameters
