"""The rotary-embedding keys of config.json, in one spelling.

Transformers 4 writes `rope_theta` beside `rope_scaling`; version 5 writes `rope_parameters` with
both inside; some MLX conversions write `type` for `rope_type`. All three are read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from phyla.family.config import ConfigPart
from phyla.validation import shown

RopeType = Literal["default", "linear", "llama3", "yarn", "longrope", "proportional", "factors"]

# One number per pair of rotated dimensions; its frequency is divided by it.
_Factors = tuple[Annotated[float, Field(gt=0)], ...]

_Pairs = Annotated[int, Field(ge=0)]


# Where the keys may stand together; the later one wins.
_SECTIONS = ("rope_scaling", "rope_parameters")
_TEXTS = ("text_config", "llm_config")


class RopeConfig(ConfigPart):
    """How positions become rotation angles.

    `proportional` is Gemma 4's: of a head's pairs, which lie half a head apart, the first
    `partial_rotary_factor` rotate, at the frequencies they would have if all did.

    `factors` is a type of ours: each frequency is divided by its factor, as GGUF files store the
    Llama 3 rule already worked out.

    `mrope_section` says how many of the pairs turn by time, by row and by column, dealt out in turn
    (Qwen3-VL); None where a token has one position.
    """

    theta: float = Field(gt=0, validation_alias="rope_theta")
    type: RopeType = Field(default="default", validation_alias="rope_type")
    partial_rotary_factor: float = Field(default=1.0, gt=0, le=1)
    factor: float | None = Field(default=None, gt=0)
    attention_factor: float | None = Field(default=None, gt=0)
    original_max_position_embeddings: int | None = Field(default=None, gt=0)
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = Field(default=None, ge=0)
    beta_slow: float | None = Field(default=None, ge=0)
    mscale: float | None = Field(default=None, ge=0)
    mscale_all_dim: float | None = Field(default=None, ge=0)
    truncate: bool = True
    short_factor: _Factors | None = None
    long_factor: _Factors | None = None
    factors: _Factors | None = None
    mrope_section: tuple[_Pairs, _Pairs, _Pairs] | None = None

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

    @model_validator(mode="after")
    def _nothing_is_divided_by_zero(self) -> RopeConfig:
        original = self.original_max_position_embeddings
        if self.type == "yarn" and self.theta <= 1:
            raise ValueError("a mapping with 'rope_theta' above 1, which rope_type 'yarn' needs")
        if self.type == "longrope" and original is not None and original <= 1:
            raise ValueError(
                "a mapping with 'original_max_position_embeddings' above 1, which rope_type "
                "'longrope' needs"
            )
        low, high = self.low_freq_factor, self.high_freq_factor
        if self.type == "llama3" and low is not None and high is not None and low >= high:
            raise ValueError("a mapping with 'low_freq_factor' below 'high_freq_factor'")
        return self

    @model_validator(mode="after")
    def _some_pair_turns(self) -> RopeConfig:
        if self.mrope_section is not None and not any(self.mrope_section):
            raise ValueError("a mapping with some number above 0 in 'mrope_section'")
        return self

    @property
    def lists_in_use(self) -> tuple[str, ...]:
        """The keys that hold one number per pair of rotated dimensions and matter for the type."""
        if self.type == "longrope":
            return ("short_factor", "long_factor")
        return ("factors",) if self.type == "factors" else ()


def read_rope(raw: Mapping[str, Any], *, default_theta: float | None) -> dict[str, Any] | None:
    """Merge the spellings of the rope keys in config.json into one mapping for `RopeConfig`.

    Returns None when no theta is given and `default_theta` is None: a missing theta is an error
    unless the model's own code defines one.

    Raises:
        ValueError: the keys are no mapping, or scale by a factor and do not say how.
    """
    merged: dict[str, Any] = {}
    theta = raw.get("rope_theta")
    if theta is None:
        theta = default_theta
    if theta is not None:
        merged["rope_theta"] = theta
    for key in ("partial_rotary_factor", "original_max_position_embeddings", "mrope_section"):
        if raw.get(key) is not None:
            merged[key] = raw[key]
    section = _SECTIONS[0]
    for key in _SECTIONS:
        scaling = raw.get(key)
        if scaling is not None:
            section = key
            if not isinstance(scaling, Mapping):
                raise ValueError(f"a config with a mapping as {key!r}, not {shown(scaling)}")
            keys = cast("Mapping[str, Any]", scaling)
            merged.update({str(k): v for k, v in keys.items() if v is not None})
    if "type" in merged:
        merged.setdefault("rope_type", merged["type"])
        del merged["type"]
    # Older files write these names for what later ones call yarn, longrope and default.
    renamed = {"su": "longrope", "mrope": "default", "none": "default"}
    kind = merged.get("rope_type")
    if isinstance(kind, str):
        merged["rope_type"] = renamed.get(kind, kind)
    elif kind is None and "factor" in merged:
        raise ValueError(f"a config whose {section!r} has a 'rope_type' beside its 'factor'")
    return merged if "rope_theta" in merged else None


def rope_place(raw: Mapping[str, Any], place: Sequence[int | str]) -> tuple[int | str, ...]:
    """Where config.json has what `RopeConfig` has at a place; for errors to name.

    Args:
        raw: the content of config.json, whose text part may have an object of its own.
        place: a rotary key and the way into it; empty for all of them.
    """
    levels: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [((), raw)]
    levels += [((key,), raw[key]) for key in _TEXTS if isinstance(raw.get(key), Mapping)]
    for outer, keys in reversed(levels):
        for section in reversed(_SECTIONS):
            if not isinstance(keys.get(section), Mapping):
                continue
            inner = cast("Mapping[str, Any]", keys[section])
            if not place:
                return (*outer, section)
            names = ("rope_type", "type") if place[0] == "rope_type" else (str(place[0]),)
            for name in names:
                if inner.get(name) is not None:
                    return (*outer, section, name, *place[1:])
        if place and keys.get(str(place[0])) is not None:
            return (*outer, *place)
    return (_SECTIONS[-1], *place)
