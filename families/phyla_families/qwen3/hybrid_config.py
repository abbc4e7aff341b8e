"""config.json of Qwen3-Next, and of Qwen3.5 (3.6, 3.8) with and without its vision tower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import model_validator

from phyla.family import HybridConfig
from phyla_families.qwen3.siblings import refuse_siblings


class Config(HybridConfig):
    """Qwen3NextConfig, Qwen3_5Config and Qwen3_5MoeConfig, and the text configs of the latter."""

    family: ClassVar[str] = "qwen3"

    @model_validator(mode="before")
    @classmethod
    def _is_no_sibling(cls, data: object) -> object:
        if isinstance(data, Mapping):
            refuse_siblings(cast("Mapping[str, Any]", data))
        return data
