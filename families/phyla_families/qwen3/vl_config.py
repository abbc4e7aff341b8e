"""config.json of Qwen3-VL and Qwen3-VL-MoE: the keys of the text part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import model_validator

from phyla.family import text_keys
from phyla_families.qwen3.config import Config


class VlConfig(Config):
    """Qwen3VLConfig and Qwen3VLMoeConfig, whose text is Qwen3's.

    Its positions have three rows, which are equal where there is only text.
    """

    @model_validator(mode="before")
    @classmethod
    def _read_the_text_part(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = text_keys(cast("Mapping[str, Any]", data))
        # The classes' own: a width, and a router without a key for it.
        raw.setdefault("head_dim", 128)
        return {**raw, "norm_topk_prob": True}
