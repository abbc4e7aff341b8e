"""config.json of MiniCPM-V 4.6 and 4.7: the keys of the text part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import model_validator

from phyla.family import HybridConfig
from phyla_families.minicpm.siblings import refuse_siblings


class VisionConfig(HybridConfig):
    """MiniCPMV4_6Config and MiniCPMV4_7Config, whose text is Qwen3.5's, dense or of experts.

    Without an image, a token's position is its place in both.
    """

    family: ClassVar[str] = "minicpm"

    @model_validator(mode="before")
    @classmethod
    def _is_no_sibling(cls, data: object) -> object:
        if isinstance(data, Mapping):
            refuse_siblings(cast("Mapping[str, Any]", data))
        return data
