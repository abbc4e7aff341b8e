"""The config keys of a Llama-shaped decoder, which several families share and extend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field, field_validator, model_validator

from phyla.family.config import FamilyConfig
from phyla.family.rope import RopeConfig, read_rope, rope_place

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint


class DecoderConfig(FamilyConfig):
    """Keys of a decoder of attention and gated MLP blocks; a family sets its own defaults.

    Attributes:
        rope: the rotary keys, whichever spelling config.json uses.
        head_dim: `kv_channels`, else `hidden_size / num_attention_heads`, when the key is absent.
        num_key_value_heads: `num_attention_heads` when the key is absent.
        hidden_act: what stands between the two projections of an MLP; one of `activations`.
        tie_word_embeddings: None when the key is absent; `settle` then goes by whether the file
            holds a head.
    """

    default_rope_theta: ClassVar[float | None] = None
    activations: ClassVar[tuple[str, ...]] = ("silu", "swish")  # two names of one function

    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    max_position_embeddings: int | None = Field(default=None, gt=0)
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    tie_word_embeddings: bool | None = None
    rope: RopeConfig

    @model_validator(mode="before")
    @classmethod
    def _fill_derived_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        raw = {str(key): value for key, value in keys.items() if value is not None}
        heads, width = _whole(raw.get("num_attention_heads")), _whole(raw.get("hidden_size"))
        if "num_key_value_heads" not in raw and heads is not None:
            raw["num_key_value_heads"] = heads
        if "head_dim" not in raw:
            if "kv_channels" in raw:
                raw["head_dim"] = raw["kv_channels"]
            elif isinstance(heads, int) and isinstance(width, int) and heads > 0:
                raw["head_dim"] = width // heads
        if "rope" not in raw:
            rope = read_rope(raw, default_theta=cls.default_rope_theta)
            if rope is None:
                raise ValueError("a config with 'rope_theta' (or 'rope_parameters')")
            raw["rope"] = rope
        return raw

    @classmethod
    def as_written(cls, raw: Mapping[str, Any], place: Sequence[int | str]) -> Sequence[int | str]:
        """The rotary keys stand in one of several objects."""
        return rope_place(raw, place[1:]) if place and place[0] == "rope" else place

    @field_validator("hidden_act")
    @classmethod
    def _activation_is_built(cls, name: str) -> str:
        if name not in cls.activations:
            raise ValueError(" or ".join(map(repr, cls.activations)))
        return name

    @model_validator(mode="after")
    def _heads_group_evenly(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) to be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        return self

    @model_validator(mode="after")
    def _rotation_fits_the_heads(self) -> Self:
        dims = int(self.head_dim * self.rope.partial_rotary_factor)
        if dims < 2 or dims % 2:
            raise ValueError(
                f"a config that rotates an even number of dimensions, not {dims} of "
                f"head_dim {self.head_dim}"
            )
        for key in self.rope.lists_in_use:
            found = len(getattr(self.rope, key))
            if found != dims // 2:
                raise ValueError(
                    f"a config with {dims // 2} numbers in {key!r}, one for each pair of rotated "
                    f"dimensions, not {found}"
                )
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Where config.json does not say whether the head is tied, go by whether the file holds one.

        A head that config.json speaks of and the file does not hold is for the loader to miss.
        """
        if self.tie_word_embeddings is not None:
            return self
        held = any(name.endswith("lm_head.weight") for name in checkpoint.tensors)
        return self.model_copy(update={"tie_word_embeddings": not held})

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding's transpose."""
        return bool(self.tie_word_embeddings)

    @property
    def context_length(self) -> int | None:
        """How many tokens the model was made for."""
        return self.max_position_embeddings


def _whole(value: object) -> object:
    """A whole number written with a point as the integer that pydantic will make of it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_layer_types(found: Sequence[str], *, count: int, known: Sequence[str]) -> None:
    """Check config.json's `layer_types`: one for each of `count` layers, of those that are known.

    Raises:
        ValueError: they are not; for a validator of the config to raise.
    """
    if len(found) != count:
        raise ValueError(
            f"a config with {count} 'layer_types', one for each layer, not {len(found)}"
        )
    for kind in found:
        if kind not in known:
            raise ValueError(f"a config with 'layer_types' of {known}, not {kind!r}")
