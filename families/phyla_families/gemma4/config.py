"""config.json of Gemma 4, of every size: the text part, and beside it what reads media."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import AliasChoices, BaseModel, Field, field_validator, model_validator

from phyla.errors import UnsupportedModelError
from phyla.family import DecoderConfig, RopeConfig, rope_place
from phyla_families.gemma4.media_config import (
    ConformerConfig,
    PatchesConfig,
    SamplesConfig,
    TowerConfig,
)
from phyla_families.gemma4.siblings import SIBLINGS
from phyla_families.gemma4.spelling import flat

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

LayerType = Literal["sliding_attention", "full_attention"]

# The fields that hold what 'rope_parameters' says of each type of layer.
_ROPES: Mapping[str, LayerType] = {"rope": "sliding_attention", "global_rope": "full_attention"}

# In which layers the tokens of one image see one another, in a model with "vision". Google's own
# code, transformers for `gemma4`, and transformers for `gemma4_unified` with a static cache agree
# on the sliding ones, where the window still holds; transformers for `gemma4_unified` otherwise, and
# mlx-vlm, open the full layers too (huggingface/transformers#46711, lmstudio-ai/mlx-engine#362).
BLOCKS_IN: tuple[LayerType, ...] = ("sliding_attention",)

# A tensor that a file holds in any case if it can read a modality, by what reads it. A projector
# alone may be left over from a conversion, where there should be a tower in front of it.
_HELD: Mapping[type[BaseModel], str] = {
    TowerConfig: r"vision_tower\.patch_embedder\.input_proj",
    PatchesConfig: r"(vision_embedder|embed_vision)\.patch_dense",
    ConformerConfig: r"audio_tower\.output_proj",
    SamplesConfig: r"embed_audio\.embedding_projection",
}


class Config(DecoderConfig):
    """Gemma4TextConfig and Gemma4UnifiedTextConfig.

    `head_dim`, `num_key_value_heads` and `rope` are those of the sliding layers; full layers have
    their own.

    Attributes:
        layer_types: what each layer attends over. The last layer is always a full one.
        sliding_window: how many tokens a sliding layer's query sees, itself included.
        global_head_dim: width of a head in full layers.
        num_global_key_value_heads: key and value heads of full layers.
        global_rope: the rotary keys of full layers.
        attention_k_eq_v: full layers have no value projection; a value is the key before its norm.
        num_kv_shared_layers: so many layers at the end have no keys and values of their own.
        use_double_wide_mlp: the MLPs of those layers are twice as wide.
        hidden_size_per_layer_input: width of the embedding that every layer gets; 0 for none.
        vocab_size_per_layer_input: rows of that embedding's table.
        pad_token_id: what a soft token of an image, a video or audio is looked up as.
        final_logit_softcapping: a logit's absolute value stays below it; None for no bound.
        use_bidirectional_attention: "vision" if the tokens of one image see one another.
        vision: how images and videos are read; None where they are not.
        audio: how audio is read; None where it is not.
    """

    family: ClassVar[str] = "gemma4"
    activations: ClassVar[tuple[str, ...]] = ("gelu_pytorch_tanh",)

    model_type: str | None = None
    max_position_embeddings: int | None = Field(default=131072, gt=0)
    hidden_act: str = Field(
        default="gelu_pytorch_tanh",
        validation_alias=AliasChoices("hidden_activation", "hidden_act"),
    )
    tie_word_embeddings: bool | None = True
    pad_token_id: int = Field(default=0, ge=0)
    image_token_id: int | None = None
    video_token_id: int | None = None
    audio_token_id: int | None = None

    layer_types: tuple[LayerType, ...]
    sliding_window: int = Field(gt=0)
    global_head_dim: int = Field(gt=0)
    num_global_key_value_heads: int = Field(gt=0)
    global_rope: RopeConfig
    attention_k_eq_v: bool = False
    num_kv_shared_layers: int = Field(default=0, ge=0)
    use_double_wide_mlp: bool = False

    hidden_size_per_layer_input: int = Field(ge=0)
    vocab_size_per_layer_input: int = Field(gt=0)

    enable_moe_block: bool = False
    num_experts: int | None = Field(default=None, gt=0)
    top_k_experts: int | None = Field(default=None, gt=0)
    moe_intermediate_size: int | None = Field(default=None, gt=0)

    final_logit_softcapping: float | None = Field(default=None, gt=0)
    use_bidirectional_attention: Literal["vision", "all"] | None = None

    vision: TowerConfig | PatchesConfig | None = None
    audio: ConformerConfig | SamplesConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_flat_mapping(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        return flat(cast("Mapping[str, Any]", data))

    @classmethod
    def as_written(cls, raw: Mapping[str, Any], place: Sequence[int | str]) -> Sequence[int | str]:
        """Each type of layer has its own object in 'rope_parameters'."""
        kind = _ROPES.get(str(place[0])) if place else None
        if kind is None:
            return place
        inner = isinstance(raw.get("text_config"), Mapping)
        keys: Mapping[str, Any] = raw["text_config"] if inner else raw
        ropes = keys.get("rope_parameters")
        own = ropes.get(kind) if isinstance(ropes, Mapping) else None
        section, *rest = rope_place({"rope_parameters": own}, place[1:])
        return (*(("text_config",) if inner else ()), section, kind, *rest)

    @field_validator("model_type")
    @classmethod
    def _is_no_sibling(cls, model_type: str | None) -> str | None:
        if model_type is not None and (sibling := SIBLINGS.get(model_type)) is not None:
            raise UnsupportedModelError(
                f"Model type {model_type!r} is {sibling}.",
                model_type=model_type,
                hint="Use one of the Gemma 4 models.",
            )
        return model_type

    @field_validator("layer_types")
    @classmethod
    def _the_last_layer_is_full(cls, kinds: tuple[LayerType, ...]) -> tuple[LayerType, ...]:
        return (*kinds[:-1], "full_attention") if kinds else kinds

    @model_validator(mode="after")
    def _writes_one_token_after_another(self) -> Self:
        if self.use_bidirectional_attention == "all":
            raise UnsupportedModelError(
                "This Gemma 4 is an encoder: with 'use_bidirectional_attention' of 'all' every "
                "token sees every other, so it cannot write.",
                model_type=self.model_type,
                hint="Use a checkpoint that was made to generate text.",
            )
        return self

    @model_validator(mode="after")
    def _each_layer_has_a_type(self) -> Self:
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"a config with {self.num_hidden_layers} 'layer_types', one for each layer, not "
                f"{len(self.layer_types)}"
            )
        return self

    @model_validator(mode="after")
    def _full_layers_fit_together(self) -> Self:
        if self.num_attention_heads % self.num_global_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) to be a multiple of the full "
                f"layers' key and value heads ({self.num_global_key_value_heads})"
            )
        turned = int(self.global_head_dim * self.global_rope.partial_rotary_factor)
        if self.global_head_dim % 2 or turned < 2:
            raise ValueError(
                f"a config that rotates pairs of dimensions in full layers, not {turned} "
                f"dimensions of 'global_head_dim' {self.global_head_dim}"
            )
        return self

    @model_validator(mode="after")
    def _shared_layers_have_an_owner(self) -> Self:
        owners = self.layer_types[: self.first_shared_layer]
        for kind in self.layer_types[self.first_shared_layer :]:
            if kind not in owners:
                raise ValueError(
                    f"a config in which a layer of type {kind!r} before the last "
                    f"'num_kv_shared_layers' ({self.num_kv_shared_layers}) has keys and values to "
                    f"share"
                )
        return self

    @model_validator(mode="after")
    def _experts_are_described(self) -> Self:
        if not self.enable_moe_block:
            return self
        for key in ("num_experts", "top_k_experts", "moe_intermediate_size"):
            if getattr(self, key) is None:
                raise ValueError(f"a mixture of experts with {key!r}")
        if (self.top_k_experts or 0) > (self.num_experts or 0):
            raise ValueError(
                f"a mixture of experts with 'top_k_experts' ({self.top_k_experts}) up to "
                f"'num_experts' ({self.num_experts})"
            )
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide by the files whether there is a head, and what reads images and audio."""
        absent = {
            key: None
            for key, part in (("vision", self.vision), ("audio", self.audio))
            if part is not None and not _holds(checkpoint, _HELD[type(part)])
        }
        return super().settle(checkpoint).model_copy(update=absent)

    @property
    def first_shared_layer(self) -> int:
        """The first layer without keys and values of its own; the number of layers if all have."""
        return max(0, self.num_hidden_layers - self.num_kv_shared_layers)

    @property
    def soft_tokens(self) -> tuple[int, ...]:
        """The ids that stand for a piece of an image, a video or audio."""
        ids = (self.image_token_id, self.video_token_id, self.audio_token_id)
        return tuple(index for index in ids if index is not None)

    def slides(self, layer: int) -> bool:
        """Whether a layer sees a window only."""
        return self.layer_types[layer] == "sliding_attention"

    def sees_blocks(self, layer: int) -> bool:
        """Whether in a layer the tokens of one image see one another, also those to come."""
        return self.use_bidirectional_attention == "vision" and self.layer_types[layer] in BLOCKS_IN

    def owner(self, layer: int) -> int | None:
        """The layer whose keys and values a layer reads; None if it has its own."""
        if layer < self.first_shared_layer:
            return None
        kind = self.layer_types[layer]
        same = [i for i in range(self.first_shared_layer) if self.layer_types[i] == kind]
        return same[-1]

    def mlp_width(self, layer: int) -> int:
        """The inner width of a layer's dense MLP."""
        doubled = self.use_double_wide_mlp and self.owner(layer) is not None
        return self.intermediate_size * (2 if doubled else 1)


def _holds(checkpoint: Checkpoint, module: str) -> bool:
    weight = re.compile(rf"(model\.)?{module}\.weight")
    return any(map(weight.fullmatch, checkpoint.tensors))
