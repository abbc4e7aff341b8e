"""mlx-vlm's image processors and towers, called as its `prepare_inputs` and its models call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray


@dataclass(frozen=True)
class PeerSense:
    """How mlx-vlm reads one modality.

    Attributes:
        prepare: from a picture of Pillow's, or samples of 16 kHz, to what `features` takes.
        features: the tower and the projector; several arrays where there is DeepStack.
    """

    prepare: Callable[[Any], Any]
    features: Callable[[Any], list[mx.array]]


def peer_senses(name: str, folder: Path, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    """Load a model of media_models.py; `settings` are its preprocessor_config.json.

    Returns:
        How it reads images, and audio if it does.
    """
    from mlx_vlm.utils import load_model

    return _SENSES[name](load_model(folder), settings)


def _qwen(model: Any, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLImageProcessor

    size = settings["size"]
    processor = Qwen3VLImageProcessor(
        min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"]
    )

    def features(inputs: Mapping[str, NDArray[Any]]) -> list[mx.array]:
        pixels, grid = mx.array(inputs["pixel_values"]), mx.array(inputs["image_grid_thw"])
        hidden, deep = model.vision_tower(pixels, grid)
        return [hidden, *deep]

    return {"image": PeerSense(lambda picture: processor([picture]), features)}


def _gemma4(model: Any, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    from mlx_vlm.models.gemma4.audio_feature_extractor import Gemma4AudioFeatureExtractor
    from mlx_vlm.models.gemma4.processing_gemma4 import Gemma4ImageProcessor

    processor, extractor = Gemma4ImageProcessor(), Gemma4AudioFeatureExtractor()

    def heard(inputs: Mapping[str, Any]) -> list[mx.array]:
        mel = mx.array(np.stack(inputs["input_features"]))
        mask = mx.array(np.stack(inputs["input_features_mask"]))
        encoded, padded = model.audio_tower(mel, ~mask.astype(mx.bool_))
        rows = model.embed_audio(encoded)[0]
        return [rows[: int((~padded[0]).sum().item())]]

    return {
        "image": PeerSense(
            lambda picture: processor([picture])[0]["pixel_values"],
            lambda pixels: [model.encode_image(mx.array(pixels))[0]],
        ),
        "audio": PeerSense(extractor, heard),
    }


def _gemma4_unified(model: Any, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    from mlx_vlm.models.gemma4_unified.processing_gemma4_unified import (
        Gemma4UnifiedAudioFeatureExtractor,
        Gemma4UnifiedImageProcessor,
    )

    processor, extractor = Gemma4UnifiedImageProcessor(), Gemma4UnifiedAudioFeatureExtractor()
    return {
        "image": PeerSense(
            lambda picture: processor([picture])[0],
            lambda inputs: [
                model.get_image_features(
                    mx.array(inputs["pixel_values"]), mx.array(inputs["image_position_ids"])
                )
            ],
        ),
        "audio": PeerSense(
            extractor,
            lambda inputs: [
                model.get_audio_features(
                    mx.array(inputs["input_features"]), mx.array(inputs["input_features_mask"])
                )
            ],
        ),
    }


def _lfm2(model: Any, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    from mlx_vlm.models.lfm2_vl.processing_lfm2_vl import Lfm2VlNumpyImageProcessor

    processor = Lfm2VlNumpyImageProcessor(**settings)

    def features(inputs: Mapping[str, Any]) -> list[mx.array]:
        views = model.encode_images(
            mx.array(inputs["pixel_values"]),
            spatial_shapes=mx.array(inputs["spatial_shapes"]),
            pixel_attention_mask=mx.array(inputs["pixel_attention_mask"]),
        )
        return [mx.concatenate(list(views))]

    return {"image": PeerSense(lambda picture: processor([picture]), features)}


def _minicpm(model: Any, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    from mlx_vlm.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMVImageProcessor

    processor = MiniCPMVImageProcessor()
    return {
        "image": PeerSense(
            lambda picture: processor([[picture]]),
            lambda inputs: model.get_vision_embedding(inputs["pixel_values"], inputs["tgt_sizes"]),
        )
    }


def _nemotron(model: Any, settings: Mapping[str, Any]) -> dict[str, PeerSense]:
    from mlx_vlm.models.nemotron_h_nano_omni.image_processing_nemotron_h_nano_omni import (
        NemotronHNanoOmniImageProcessor,
    )

    # Its base class is only for torchvision, which `_preprocess` does not need.
    processor = NemotronHNanoOmniImageProcessor(**settings)

    def features(pixels: NDArray[np.float32]) -> list[mx.array]:
        return [model.extract_feature(mx.array(pixels))[0]]

    def heard(inputs: tuple[Any, Any, Any]) -> list[mx.array]:
        mel, mask, lengths = inputs
        return [
            model._extract_sound_features(  # noqa: SLF001
                input_features=mel, feature_attention_mask=mask, feature_lengths=lengths
            )
        ]

    def extracted(samples: NDArray[np.float32]) -> tuple[Any, Any, Any]:
        found = model.sound_feature_extractor([samples])
        mx.eval([each for each in found if isinstance(each, mx.array)])
        return found

    return {
        "image": PeerSense(
            lambda picture: processor._preprocess([picture])["pixel_values"],  # noqa: SLF001
            features,
        ),
        "audio": PeerSense(extracted, heard),
    }


_SENSES: Mapping[str, Callable[[Any, Mapping[str, Any]], dict[str, PeerSense]]] = {
    "qwen3_vl": _qwen,
    "qwen3_5": _qwen,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4_unified,
    "lfm2_vl": _lfm2,
    "minicpmv4_6": _minicpm,
    "nemotron_h_omni": _nemotron,
}
