"""The spellings of a Gemma 4 config.json, brought to one flat mapping with transformers' defaults.

The keys lie in `text_config` of a multimodal checkpoint and at the top of a text-only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from phyla.family import read_rope
from phyla.validation import shown
from phyla_families.gemma4.media_config import (
    ConformerConfig,
    PatchesConfig,
    SamplesConfig,
    TowerConfig,
    read_part,
)

# Keys that a multimodal config says at its top, whatever its `text_config` says.
_OUTER = (
    "model_type",
    "tie_word_embeddings",
    "image_token_id",
    "video_token_id",
    "audio_token_id",
)

# What transformers says of a multimodal config that leaves them out.
_SOFT_TOKENS: Mapping[str, int] = {
    "image_token_id": 258880,
    "audio_token_id": 258881,
    "video_token_id": 258884,
}

_ROPE: Mapping[str, Mapping[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1000000.0,
    },
}

# Transformers' defaults. Its config classes for the encoder-free 12B have no keys for per-layer
# embeddings and experts, so there whatever a file says of these is not meant.
_DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
}
_UNIFIED_DEFAULTS: Mapping[str, Any] = {**_DEFAULTS, "sliding_window": 1024}
_UNIFIED: Mapping[str, Any] = {"hidden_size_per_layer_input": 0, "enable_moe_block": False}

_OF_FULL_LAYERS: Mapping[str, str] = {
    "head_dim": "global_head_dim",
    "num_key_value_heads": "num_global_key_value_heads",
}


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text part of config.json, one spelling for each key, defaults filled in.

    Raises:
        ValueError: a key that holds others is no mapping, or the full layers differ; says what was
            expected, as a validator does.
    """
    raw = _text_keys(config)
    unified = str(raw.get("model_type")).startswith("gemma4_unified")
    if unified:
        raw.update(_UNIFIED)
        raw.setdefault("use_bidirectional_attention", "vision")
    for key, value in (_UNIFIED_DEFAULTS if unified else _DEFAULTS).items():
        if raw.get(key) is None:
            raw[key] = value
    if "rope" not in raw:
        parameters = raw.get("rope_parameters")
        ropes: object = _ROPE if parameters is None else parameters
        raw["rope"] = _rope(ropes, "sliding_attention")
        raw["global_rope"] = _rope(ropes, "full_attention")
    raw.update(_media(config, unified=unified))
    return _full_heads(raw)


def _text_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the text part, with those that only the top says."""
    text = raw.get("text_config")
    if text is None:
        return dict(raw)
    if not isinstance(text, Mapping):
        raise ValueError(f"a config with a mapping as 'text_config', not {shown(text)}")
    nested = {str(key): value for key, value in cast("Mapping[str, Any]", text).items()}
    outer = {**_SOFT_TOKENS, **{key: raw[key] for key in _OUTER if key in raw}}
    rest = {key: value for key, value in raw.items() if key != "text_config"}
    return {**rest, **nested, **outer}


def _media(config: Mapping[str, Any], *, unified: bool) -> dict[str, Any]:
    """How a multimodal config reads images and audio; null stands for a modality it has not."""
    if config.get("text_config") is None:
        return {}
    media: dict[str, Any] = {}
    vision, audio = config.get("vision_config"), config.get("audio_config")
    if vision is not None:
        kind = PatchesConfig if unified else TowerConfig
        media["vision"] = read_part(kind, vision, "vision_config")
    if audio is not None:
        kind = SamplesConfig if unified else ConformerConfig
        media["audio"] = read_part(kind, audio, "audio_config")
    return media


def _rope(ropes: object, kind: str) -> dict[str, Any]:
    """One layer type's rotary keys."""
    own = cast("Mapping[str, Any]", ropes).get(kind) if isinstance(ropes, Mapping) else None
    keys = read_rope({"rope_parameters": own}, default_theta=None)
    if keys is None:
        raise ValueError(
            f"a config whose 'rope_parameters' has 'rope_theta' for {kind!r}, not {shown(ropes)}"
        )
    return keys


def _full_heads(raw: dict[str, Any]) -> dict[str, Any]:
    """Settle the head size and the key and value heads of full layers.

    Published files say `global_head_dim` and `num_global_key_value_heads`, and the second counts
    only with `attention_k_eq_v`. Files saved by transformers 5 say what these come to, layer by
    layer, in `per_layer_config`.
    """
    by_layer = raw.get("per_layer_config")
    if by_layer is None:
        own = raw.get("num_global_key_value_heads") if raw.get("attention_k_eq_v") else None
        raw["num_global_key_value_heads"] = raw["num_key_value_heads"] if own is None else own
        return raw
    layers = _full_layers(by_layer, raw.get("layer_types"))
    for key in ("head_dim", "num_key_value_heads"):
        values = [layer.get(key, raw[key]) for layer in layers] or [raw[key]]
        if any(value != values[0] for value in values):
            raise ValueError(
                f"a config whose 'per_layer_config' gives all full layers the same {key!r}, "
                f"not {shown(values)}"
            )
        raw[_OF_FULL_LAYERS[key]] = values[0]
    return raw


def _full_layers(by_layer: object, kinds: object) -> list[Mapping[str, Any]]:
    """What `per_layer_config` says of the full layers; it may say nothing of the others."""
    layers: dict[int, Mapping[str, Any]] = {}
    if isinstance(by_layer, Mapping):
        for index, own in cast("Mapping[str, Any]", by_layer).items():
            if (
                not str(index).isdigit()
                or not isinstance(own, Mapping)
                or set(own) - set(_OF_FULL_LAYERS)
            ):
                raise ValueError(
                    f"a config whose 'per_layer_config' gives layers a 'head_dim' and "
                    f"'num_key_value_heads', not {shown({index: own})}"
                )
            layers[int(index)] = cast("Mapping[str, Any]", own)
    if not isinstance(kinds, list | tuple):
        return list(layers.values())  # 'layer_types' is missing, which is an error of its own
    types = cast("list[str]", list(cast("list[Any]", kinds)))
    full = [index for index, kind in enumerate(types) if kind == "full_attention"]
    others = sorted(set(layers) - set(full))
    if others:
        raise ValueError(
            f"a config whose 'per_layer_config' changes full layers only, not {others}"
        )
    return [layers.get(index, {}) for index in full]
