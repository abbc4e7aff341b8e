"""The rotary-embedding keys of config.json, in one spelling.

Transformers 4 writes `rope_theta` beside `rope_scaling`; version 5 writes `rope_parameters` with
both inside; some MLX conversions write `type` for `rope_type`. All three are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

RopeType = Literal["default", "linear", "llama3", "yarn", "longrope", "factors"]


class RopeConfig(BaseModel):
    """How positions become rotation angles.

    `factors` is a type of ours: each frequency is divided by its factor, as GGUF files store the
    Llama 3 rule already worked out.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    theta: float = Field(gt=0, validation_alias="rope_theta")
    type: RopeType = Field(default="default", validation_alias="rope_type")
    partial_rotary_factor: float = Field(default=1.0, gt=0, le=1)
    factor: float | None = Field(default=None, gt=0)
    attention_factor: float | None = None
    original_max_position_embeddings: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None
    factors: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _each_type_has_its_keys(self) -> RopeConfig:
        needs: dict[str, tuple[str, ...]] = {
            "linear": ("factor",),
            "llama3": (
                "factor",
                "low_freq_factor",
                "high_freq_factor",
                "original_max_position_embeddings",
            ),
            "yarn": ("original_max_position_embeddings",),
            "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
            "factors": ("factors",),
        }
        for key in needs.get(self.type, ()):
            if getattr(self, key) is None:
                raise ValueError(f"a mapping with {key!r}, which rope_type {self.type!r} needs")
        return self


def read_rope(raw: Mapping[str, Any], *, default_theta: float | None) -> dict[str, Any] | None:
    """Merge the spellings of the rope keys in config.json into one mapping for `RopeConfig`.

    Returns None when no theta is given and `default_theta` is None: a missing theta is an error
    unless the model's own code defines one.
    """
    merged: dict[str, Any] = {}
    theta = raw.get("rope_theta")
    if theta is None:
        theta = default_theta
    if theta is not None:
        merged["rope_theta"] = theta
    for key in ("partial_rotary_factor", "original_max_position_embeddings"):
        if raw.get(key) is not None:
            merged[key] = raw[key]
    for key in ("rope_scaling", "rope_parameters"):
        scaling = raw.get(key)
        if isinstance(scaling, Mapping):
            keys = cast("Mapping[str, Any]", scaling)
            merged.update({str(k): v for k, v in keys.items() if v is not None})
    if "type" in merged:
        merged.setdefault("rope_type", merged["type"])
        del merged["type"]
    # Older files write these names for what later ones call yarn, longrope and default.
    renamed = {"su": "longrope", "mrope": "default", "none": "default"}
    if merged.get("rope_type") in renamed:
        merged["rope_type"] = renamed[str(merged["rope_type"])]
    return merged if "rope_theta" in merged else None
