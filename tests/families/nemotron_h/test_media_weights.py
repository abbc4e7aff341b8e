"""The towers' tensors, in every layout they are published in, and checkpoints without towers."""

from __future__ import annotations

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
from phyla.errors import ConfigError
from phyla.family import MediaReaders
from phyla.testing import (
    MARKS,
    Forward,
    assert_close,
    prompt_ids,
    random_tensor,
    read_tiny,
    write_checkpoint,
    write_files,
)
from phyla_families.nemotron_h.config import Config
from phyla_families.nemotron_h.media import media
from phyla_families.nemotron_h.omni import build
from phyla_families.nemotron_h.weights import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))
BIASED = "biases, scaled input, a quarter of the frames"
NORMED = "a norm after the tower, three frames to a patch, deaf"
PROMPT = prompt_ids(20)
Tensors = dict[str, mx.array]

SCALES = {
    "scale": mx.array([1 / 60, 1 / 70, 1 / 65]),
    "shift": mx.array([-2.0, -1.9, -1.8]),
}


def made(forward: Forward) -> dict[str, NDArray[np.float32]]:
    """What the towers make of some noise, by modality; logits of a prompt as `text`."""
    config: Any = forward.config
    frames = mx.array(255 * random_tensor("noise", (3, 16, 24, 3)) ** 2)
    given: dict[Any, Any] = {}
    if config.vision is not None:
        given["image"] = {"frames": frames[:1], **SCALES}
        if config.vision.span is not None:
            given["video"] = {"frames": frames, **SCALES}
    if config.sound is not None:
        given["audio"] = {"mel": mx.array(random_tensor("mel", (41, config.sound.num_mel_bins)))}
    found = {
        modality: np.array(forward.model.media_features(modality, arrays).hidden.astype(mx.float32))
        for modality, arrays in given.items()
    }
    return {**found, "text": forward.logits(PROMPT)}


def assert_same(folder: Path, expected: Mapping[str, NDArray[np.float32]]) -> None:
    found = made(Forward(folder))
    assert found.keys() == expected.keys()
    for modality, array in found.items():
        assert_close(array, expected[modality])


def written(name: str, folder: Path) -> tuple[Tensors, dict[str, NDArray[np.float32]]]:
    """A checkpoint's tensors under our own names, and what they make."""
    write_checkpoint(folder, TABLE[name].config)
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors, made(Forward(folder))


def renamed(tensors: Mapping[str, mx.array], names: Mapping[str, str]) -> Tensors:
    """Each name with the first pattern that fits replaced; names of text get their prefix."""
    out: Tensors = {}
    for name, tensor in tensors.items():
        for pattern, into in names.items():
            if match := re.fullmatch(pattern, name):
                out[match.expand(into)] = tensor
                break
        else:
            raise AssertionError(f"{name} has no place in this layout")
    return out


def with_whole_qkv(tensors: Mapping[str, mx.array]) -> Tensors:
    joined = dict(tensors)
    for name in tensors:
        if match := re.fullmatch(r"(vision_model.*)\.self_attn\.q_proj\.(weight|bias)", name):
            parts = [joined.pop(f"{match[1]}.self_attn.{p}_proj.{match[2]}") for p in "qkv"]
            joined[f"{match[1]}.attn.qkv.{match[2]}"] = mx.concatenate(parts)
    return joined


def channels_first(tensors: Mapping[str, mx.array]) -> Tensors:
    """Kernels of the encoder as PyTorch has them."""
    axes = {4: (0, 3, 1, 2), 3: (0, 2, 1)}
    return {
        name: tensor.transpose(axes[tensor.ndim])
        if name.startswith("audio_tower") and tensor.ndim in axes
        else tensor
        for name, tensor in tensors.items()
    }


RADIO = "vision_model.radio_model.model."
NVIDIA = {
    r"vision_model\.embeddings\.patch_projection\.(.*)": RADIO + r"patch_generator.embedder.\1",
    r"vision_model\.embeddings\.video_patch_projection\.(.*)":
        RADIO + r"patch_generator.video_embedder.\1",
    r"vision_model\.embeddings\.position_embedding": RADIO + "patch_generator.pos_embed",
    r"vision_model\.embeddings\.cls_register_token": RADIO + "patch_generator.cls_token.token",
    r"vision_model\.layers\.(\d+)\.self_attn\.out_proj\.(.*)": RADIO + r"blocks.\1.attn.proj.\2",
    r"vision_model\.layers\.(.*)": RADIO + r"blocks.\1",
    r"vision_final_layernorm\.(.*)": r"vision_projector.vision_final_layernorm.\1",
    r"multi_modal_projector\.layer_norm\.(.*)": r"mlp1.0.\1",
    r"multi_modal_projector\.linear_1\.(.*)": r"mlp1.1.\1",
    r"multi_modal_projector\.linear_2\.(.*)": r"mlp1.3.\1",
    r"audio_tower\.(.*)": r"sound_encoder.encoder.\1",
    r"embed_audio\.layer_norm\.(.*)": r"sound_projection.norm.\1",
    r"embed_audio\.linear_([12])\.(.*)": r"sound_projection.linear\1.\2",
    r"lm_head\.(.*)": r"language_model.lm_head.\1",
    r"(.*)": r"language_model.backbone.\1",
}  # fmt: skip
TRANSFORMERS = {
    r"vision_model\.layers\.(\d+)\.self_attn\.out_proj\.(.*)":
        r"vision_model.encoder.layer.\1.attention.o_proj.\2",
    r"vision_model\.layers\.(\d+)\.self_attn\.(.*)":
        r"vision_model.encoder.layer.\1.attention.\2",
    r"vision_model\.layers\.(.*)": r"vision_model.encoder.layer.\1",
    r"((?:vision|multi_modal|audio_tower|embed_audio).*)": r"\1",
    r"lm_head\.(.*)": r"language_model.lm_head.\1",
    r"(.*)": r"language_model.model.\1",
}  # fmt: skip
MLX = {
    **NVIDIA,
    r"vision_final_layernorm\.(.*)": r"vision_final_layernorm.\1",
    r"multi_modal_projector\.layer_norm\.(.*)": r"mlp1.layers.0.\1",
    r"multi_modal_projector\.linear_1\.(.*)": r"mlp1.layers.1.\1",
    r"multi_modal_projector\.linear_2\.(.*)": r"mlp1.layers.3.\1",
}


def nvidia(tensors: Mapping[str, mx.array]) -> Tensors:
    """As published, with what else lies in the file and has no use."""
    named = renamed(with_whole_qkv(channels_first(tensors)), NVIDIA)
    extra = {
        "vision_model.radio_model.summary_idxs": mx.array([0, 1, 2]),
        "vision_model.radio_model.input_conditioner.norm_mean": mx.zeros((3, 1, 1)),
        RADIO + "blocks.0.ls1.gamma": mx.zeros((48,)),
        "sound_encoder.encoder.feature_extractor.featurizer.fb": mx.zeros((1, 16, 257)),
        "sound_encoder.encoder.layers.0.conv.norm.num_batches_tracked": mx.array(7),
    }
    return {**named, **extra}


def transformers_in_memory(tensors: Mapping[str, mx.array]) -> Tensors:
    return renamed(channels_first(tensors), TRANSFORMERS)


def mlx_conversion(tensors: Mapping[str, mx.array]) -> Tensors:
    return renamed(with_whole_qkv(tensors), MLX)


@pytest.mark.parametrize("name", list(TABLE))
@pytest.mark.parametrize("layout", [nvidia, transformers_in_memory, mlx_conversion])
def test_every_layout_gives_the_same(
    name: str, layout: Callable[[Mapping[str, mx.array]], Tensors], tmp_path: Path
) -> None:
    tensors, expected = written(name, tmp_path / "own")
    assert_same(write_files(tmp_path / "other", TABLE[name].config, layout(tensors)), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_towers_compute_in_the_type_of_the_file(dtype: str, tmp_path: Path) -> None:
    config = TABLE["everything"].config
    exact = made(Forward(write_checkpoint(tmp_path / "exact", config)))
    folder = write_checkpoint(tmp_path / "narrow", config, dtype=dtype)
    for modality, found in made(Forward(folder, dtype="stored")).items():
        assert found.shape == exact[modality].shape
        assert np.abs(found - exact[modality]).max() < 0.2 * np.ptp(exact[modality])


def test_biases_that_the_config_switches_off_are_left_out(tmp_path: Path) -> None:
    tensors, expected = written("everything", tmp_path / "own")
    extra = {
        name.replace(".weight", ".bias"): mx.ones(tensor.shape[:1])
        for name, tensor in tensors.items()
        if re.fullmatch(
            r"audio_tower\.layers\.\d+\.(conv.*_conv\d?|self_attn.q_proj)\.weight", name
        )
    }
    assert len(extra) == 8
    folder = write_files(tmp_path / "other", TABLE["everything"].config, {**tensors, **extra})
    assert_same(folder, expected)


def test_factors_of_branches_are_used_where_the_file_holds_them(tmp_path: Path) -> None:
    tensors, expected = written("everything", tmp_path / "own")
    for factor in (1.0, 0.5):
        scales = {
            f"vision_model.layers.{layer}.layer_scale{branch}.lambda1": mx.full((48,), factor)
            for layer in range(3)
            for branch in (1, 2)
        }
        folder = tmp_path / str(factor)
        write_files(folder, TABLE["everything"].config, {**tensors, **scales})
        if factor == 1:
            assert_same(folder, expected)
        else:
            assert not np.allclose(made(Forward(folder))["image"], expected["image"], atol=1e-3)


def readers(folder: Path) -> MediaReaders:
    checkpoint = open_checkpoint(folder, offline=True)
    return media(Config.read(checkpoint.config).settle(checkpoint), checkpoint)


@pytest.mark.parametrize(
    ("left_out", "modalities"),
    [
        ("nothing", {"image", "audio", "video"}),
        (r"vision_model|multi_modal_projector", {"audio"}),
        (r"audio_tower|embed_audio", {"image", "video"}),
        (r"vision_model\.embeddings\.video_patch_projection", {"image", "audio"}),
        (r"vision_model|multi_modal_projector|audio_tower|embed_audio", set[str]()),
    ],
)
def test_a_modality_is_there_if_its_tensors_are(
    left_out: str, modalities: set[str], tmp_path: Path
) -> None:
    tensors, expected = written("everything", tmp_path / "own")
    kept = {n: t for n, t in tensors.items() if not re.match(rf"({left_out})\.", n)}
    config = TABLE["everything"].config
    folder = write_files(tmp_path / "other", config, kept, marks=(*MARKS, "<video>"))
    found = readers(folder)
    assert {m for m in ("image", "audio", "video") if getattr(found, m)} == modalities
    assert_same(folder, {m: expected[m] for m in {*modalities, "text"}})


def test_what_is_not_built_makes_no_features(tmp_path: Path) -> None:
    deaf = Forward(write_checkpoint(tmp_path, TABLE[NORMED].config))
    with pytest.raises(NotImplementedError, match="audio"):
        deaf.model.media_features("audio", {})


@pytest.mark.parametrize(
    "model_type",
    ["NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3",
     "nemotronh_nano_omni_reasoning_v3"],
)  # fmt: skip
def test_every_name_of_omni_is_read(model_type: str, tmp_path: Path) -> None:
    tensors, expected = written(NORMED, tmp_path / "own")
    config = {**TABLE[NORMED].config, "model_type": model_type}
    assert_same(write_files(tmp_path / "other", config, tensors), expected)


def test_of_the_older_vl_only_the_text_is_read(tmp_path: Path) -> None:
    tensors, expected = written(NORMED, tmp_path / "own")
    config = {**TABLE[NORMED].config, "model_type": "NemotronH_Nano_VL_V2", "ps_version": "v1"}
    folder = write_files(tmp_path / "other", config, nvidia(tensors))
    assert readers(folder) == MediaReaders()
    assert_same(folder, {"text": expected["text"]})


def test_quantized_towers_load(tmp_path: Path) -> None:
    config = TABLE["everything"].config
    kernels = {
        f"audio_tower.layers.{layer}.conv.pointwise_conv{number}": False
        for layer in range(2)
        for number in (1, 2)
    }
    scheme = {"bits": 8, "group_size": 32, **kernels}
    folder = write_checkpoint(tmp_path / "packed", config, quantize=scheme)
    names = open_checkpoint(folder, offline=True).tensors
    assert "audio_tower.layers.0.self_attn.q_proj.scales" in names
    assert "multi_modal_projector.linear_1.scales" in names
    exact = made(Forward(write_checkpoint(tmp_path / "whole", config)))
    for modality, found in made(Forward(folder)).items():
        spread = np.ptp(exact[modality])
        assert np.abs(found - exact[modality]).max() < 0.05 * spread


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"downsample_ratio": 0.25}, "downsample_ratio"),
        ({"ps_version": "v1"}, "ps_version"),
        ({"video_temporal_patch_size": 4}, "video_temporal_patch_size"),
        ({"vit_hidden_size": 1280}, "vit_hidden_size"),
        ({"vision_config": {"use_swiglu_ffn": True}, "vit_hidden_size": None}, "use_swiglu_ffn"),
        ({"vision_config": {"num_attention_heads": 7}, "vit_hidden_size": None}, "multiple"),
        ({"vision_config": {"max_img_size": 8}, "vit_hidden_size": None}, "max_img_size"),
        ({"vision_config": [1], "vit_hidden_size": None}, "mapping"),
        ({"sound_config": {"num_mel_bins": 20, "projection_hidden_size": 8}}, "num_mel_bins"),
        ({"sound_config": {"conv_kernel_size": 4, "projection_hidden_size": 8}}, "odd"),
        ({"sound_config": {"hidden_act": "relu", "projection_hidden_size": 8}}, "hidden_act"),
        ({"sound_config": {}}, "projection_hidden_size"),
    ],
)
def test_towers_that_are_not_built_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Config.read({**TABLE["everything"].config, **changes})


# The published sizes: Nemotron 3 Nano Omni 30B A3B, whose config has no sizes of the tower.

PUBLISHED: dict[str, Any] = {
    "model_type": "NemotronH_Nano_Omni_Reasoning_V3", "vocab_size": 131072,
    "llm_config": {**TABLE["everything"].config["llm_config"], "vocab_size": 131072,
                   "hidden_size": 2688},
    "vision_config": {"version": "c-radio_v4-h", "args": {"cpe_max_size": 2048}, "patch_size": 16,
                      "video_temporal_patch_size": 2},
    "sound_config": {
        "model_type": "parakeet", "hidden_size": 1024, "num_attention_heads": 8,
        "num_hidden_layers": 24, "intermediate_size": 4096, "conv_kernel_size": 9,
        "convolution_bias": False, "subsampling_conv_channels": 256,
        "subsampling_conv_kernel_size": 3, "subsampling_conv_stride": 2, "subsampling_factor": 8,
        "num_mel_bins": 128, "projection_hidden_size": 4096, "projection_bias": False,
        "sampling_rate": 16000,
    },
    "downsample_ratio": 0.5, "ps_version": "v2", "vit_hidden_size": 1280,
    "projector_hidden_size": 20480, "video_pruning_rate": 0.7, "img_context_token_id": 18,
    "video_context_token_id": 131081, "sound_context_token_id": 27,
}  # fmt: skip


def in_the_file() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the towers as NVIDIA publishes them."""
    generator = RADIO + "patch_generator."
    shapes: dict[str, tuple[int, ...]] = {
        "vision_model.radio_model.summary_idxs": (3,),
        generator + "embedder.weight": (1280, 768),
        generator + "video_embedder.weight": (1280, 1536),
        generator + "pos_embed": (1, 16384, 1280),
        generator + "cls_token.token": (10, 1280),
        "mlp1.0.weight": (5120,),
        "mlp1.1.weight": (20480, 5120),
        "mlp1.3.weight": (2688, 20480),
        "sound_projection.norm.weight": (1024,),
        "sound_projection.linear1.weight": (4096, 1024),
        "sound_projection.linear2.weight": (2688, 4096),
        "sound_encoder.encoder.subsampling.linear.weight": (1024, 4096),
        "sound_encoder.encoder.subsampling.linear.bias": (1024,),
    }
    for layer in range(32):
        block = f"{RADIO}blocks.{layer}."
        for name, shape in (
            ("attn.qkv", (3840, 1280)),
            ("attn.proj", (1280, 1280)),
            ("mlp.fc1", (5120, 1280)),
            ("mlp.fc2", (1280, 5120)),
            ("norm1", (1280,)),
            ("norm2", (1280,)),
        ):
            shapes[f"{block}{name}.weight"] = shape
            shapes[f"{block}{name}.bias"] = shape[:1]
    for number, inner in ((0, (1, 3, 3)), (2, (1, 3, 3)), (3, (256, 1, 1)), (5, (1, 3, 3)),
                          (6, (256, 1, 1))):  # fmt: skip
        shapes[f"sound_encoder.encoder.subsampling.layers.{number}.weight"] = (256, *inner)
        shapes[f"sound_encoder.encoder.subsampling.layers.{number}.bias"] = (256,)
    for layer in range(24):
        block = f"sound_encoder.encoder.layers.{layer}."
        for part in ("q", "k", "v", "o", "relative_k"):
            shapes[f"{block}self_attn.{part}_proj.weight"] = (1024, 1024)
        for number in (1, 2):
            shapes[f"{block}self_attn.bias_{'uv'[number - 1]}"] = (8, 128)
            shapes[f"{block}feed_forward{number}.linear1.weight"] = (4096, 1024)
            shapes[f"{block}feed_forward{number}.linear2.weight"] = (1024, 4096)
        shapes[f"{block}conv.pointwise_conv1.weight"] = (2048, 1024, 1)
        shapes[f"{block}conv.depthwise_conv.weight"] = (1024, 1, 9)
        shapes[f"{block}conv.pointwise_conv2.weight"] = (1024, 1024, 1)
        shapes[f"{block}conv.norm.num_batches_tracked"] = ()
        for norm in ("feed_forward1", "self_att", "conv", "feed_forward2", "out"):
            for part in ("weight", "bias"):
                shapes[f"{block}norm_{norm}.{part}"] = (1024,)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{block}conv.norm.{part}"] = (1024,)
    return shapes


def test_towers_of_the_published_size_have_the_published_parameters() -> None:
    shapes = in_the_file()
    tensors = {name: TensorInfo(name, shape, "BF16", 0, "f") for name, shape in shapes.items()}
    checkpoint = Checkpoint(
        path=Path(), name="omni", format="safetensors", config=PUBLISHED, generation_config={},
        tensors=tensors, tokenizer=lambda: pytest.fail("not asked for"), chat_templates={},
        quantization=None, overrides={}, load=dict,
    )  # fmt: skip
    config = Config.read(PUBLISHED).settle(checkpoint)
    placed = place(tensors, rules(config, checkpoint))
    towers = ("vision_model", "multi_modal_projector", "audio_tower", "embed_audio")
    parameters: dict[str, mx.array] = dict(tree_flatten(build(config).parameters()))
    model = {
        name: parameter.shape for name, parameter in parameters.items() if name.startswith(towers)
    }
    assert {name: each.shape for name, each in placed.items()} == model
