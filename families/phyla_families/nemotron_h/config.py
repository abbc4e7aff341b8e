"""config.json of Nemotron-H, Nano v2, Nemotron 3 and Puzzle, in the spellings they came in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from phyla.family import ConfigPart, FamilyConfig
from phyla_families.nemotron_h.omni_config import (
    SoundConfig,
    VisionConfig,
    media_keys,
    settled_sound,
    settled_vision,
)
from phyla_families.nemotron_h.siblings import refuse_siblings

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

BlockKind = Literal["mamba", "attention", "mlp", "moe"]

_LETTERS: Mapping[str, BlockKind] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS: Mapping[str, BlockKind] = {
    "mamba": "mamba",
    "linear_attention": "mamba",  # what transformers calls it from 5.13 on
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}
_INNER = ("text_config", "llm_config")


class Experts(ConfigPart):
    """The numbers of a mixture of experts.

    Attributes:
        latent: width that the routed experts work in; None for that of the hidden states.
        shared_width: width of the expert that every token goes through; None without one.
    """

    model_config = ConfigDict(extra="ignore")  # each would keep the whole config

    count: int = Field(gt=0, validation_alias=AliasChoices("n_routed_experts", "num_local_experts"))
    per_token: int = Field(gt=0, validation_alias="num_experts_per_tok")
    width: int = Field(gt=0, validation_alias="moe_intermediate_size")
    shared_width: int | None = Field(
        default=None, gt=0, validation_alias="moe_shared_expert_intermediate_size"
    )
    latent: int | None = Field(default=None, gt=0, validation_alias="moe_latent_size")
    groups: int = Field(default=1, gt=0, validation_alias="n_group")
    kept_groups: int = Field(default=1, gt=0, validation_alias="topk_group")
    normalize: bool = Field(default=True, validation_alias="norm_topk_prob")
    scale: float = Field(default=1.0, validation_alias="routed_scaling_factor")

    @model_validator(mode="before")
    @classmethod
    def _count_the_shared_ones(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        raw = {key: value for key, value in data.items() if value is not None}
        if raw.get("n_shared_experts", 1) == 0:
            raw.pop("moe_shared_expert_intermediate_size", None)
        elif "moe_shared_expert_intermediate_size" not in raw:
            raise ValueError("a mixture of experts with 'moe_shared_expert_intermediate_size'")
        return raw

    @model_validator(mode="after")
    def _the_chosen_can_be_found(self) -> Self:
        size = self.count // self.groups
        if self.count % self.groups or (self.groups > 1 and size < 2):
            raise ValueError(
                f"'n_group' ({self.groups}) groups of two or more of 'n_routed_experts' "
                f"({self.count})"
            )
        if self.kept_groups > self.groups:
            raise ValueError(f"'topk_group' ({self.kept_groups}) up to 'n_group' ({self.groups})")
        if self.per_token > self.kept_groups * size:
            raise ValueError(
                f"'num_experts_per_tok' ({self.per_token}) up to the number of experts that may "
                f"be chosen ({self.kept_groups * size})"
            )
        return self


class Block(BaseModel):
    """What one block is; a mixture of experts with its own numbers, since Puzzle's differ."""

    model_config = ConfigDict(frozen=True)

    kind: BlockKind
    experts: Experts | None = None


class Config(FamilyConfig):
    """NemotronHConfig. Keys that only some kinds of block need may be absent without them.

    `expand`, `rope_theta` and `partial_rotary_factor` stand in published files and mean nothing:
    the inner width is `mamba_num_heads * mamba_head_dim`, and attention knows no positions.

    Attributes:
        blocks: one for each layer, from `block_configs`, `layers_block_type` or
            `hybrid_override_pattern`, whichever is there first. `num_hidden_layers` has to agree
            with a pattern, as NVIDIA's own code wants it; beside a list it means nothing.
        time_step_limit: bounds of the step size; None for no upper bound.
        num_key_value_heads: 8 when the key is absent; None, as null, for `num_attention_heads`.
        mamba_bias: whether the projections of Mamba blocks have a bias.
        tie_word_embeddings: None when the key is absent.
        vision: the tower for pictures and videos, of Omni; None where there is none, or where
            `settle` found no tensors for it.
        sound: the encoder of sounds, likewise.
    """

    family: ClassVar[str] = "nemotron_h"

    blocks: tuple[Block, ...] = Field(min_length=1)
    hidden_size: int = Field(gt=0)
    layer_norm_epsilon: float = Field(
        default=1e-5, gt=0, validation_alias=AliasChoices("layer_norm_epsilon", "norm_eps")
    )
    max_position_embeddings: int | None = Field(default=None, gt=0)
    tie_word_embeddings: bool | None = None

    num_attention_heads: int | None = Field(default=None, gt=0)
    num_key_value_heads: int | None = Field(default=None, gt=0)
    head_dim: int = Field(
        default=128, gt=0, validation_alias=AliasChoices("head_dim", "attention_head_dim")
    )
    attention_bias: bool = False

    intermediate_size: int | None = Field(default=None, gt=0)
    mlp_bias: bool = False
    mlp_hidden_act: str = "relu2"

    mamba_num_heads: int | None = Field(default=None, gt=0)
    mamba_head_dim: int | None = Field(default=None, gt=0)
    ssm_state_size: int | None = Field(default=None, gt=0)
    n_groups: int = Field(
        default=8, gt=0, validation_alias=AliasChoices("mamba_n_groups", "n_groups")
    )
    conv_kernel: int = Field(
        default=4, gt=1, validation_alias=AliasChoices("mamba_d_conv", "conv_kernel")
    )
    use_conv_bias: bool = Field(
        default=True, validation_alias=AliasChoices("mamba_conv_bias", "use_conv_bias")
    )
    time_step_limit: tuple[float, float | None] = Field(
        default=(0.0, None), validation_alias=AliasChoices("mamba_dt_limit", "time_step_limit")
    )
    mamba_bias: bool = False
    mamba_hidden_act: str = "silu"
    mamba_ssm_cache_dtype: Literal["float32", "bfloat16", "float16"] = "float32"

    vision: VisionConfig | None = None
    sound: SoundConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_every_spelling(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        whole = cast("Mapping[str, Any]", data)
        refuse_siblings(whole)
        inner = next((whole[key] for key in _INNER if isinstance(whole.get(key), Mapping)), whole)
        raw = {key: value for key, value in inner.items() if value is not None}
        raw["blocks"] = _blocks(raw)
        if "num_key_value_heads" not in inner and _has(raw["blocks"], "attention"):
            raw["num_key_value_heads"] = 8
        # transformers reads the one key, mlx-lm the other; `settle` asks the file.
        raw["mamba_bias"] = any(raw.get(key) is True for key in ("use_bias", "mamba_proj_bias"))
        if raw.get("mamba_ssm_cache_dtype") == "auto":
            del raw["mamba_ssm_cache_dtype"]
        return {**raw, **media_keys(whole, inner)}

    @classmethod
    def as_written(cls, raw: Mapping[str, Any], place: Sequence[int | str]) -> Sequence[int | str]:
        """The numbers of experts stand in the config, or in a block's own object."""
        if len(place) < 3 or place[0] != "blocks":
            return place
        inner = next((key for key in _INNER if isinstance(raw.get(key), Mapping)), None)
        keys: Mapping[str, Any] = raw if inner is None else raw[inner]
        outer = () if inner is None else (inner,)
        _, index, _, *rest = place
        own = keys.get("block_configs")
        if own is not None and (not rest or own[index].get(rest[0]) is not None):
            return (*outer, "block_configs", index, *rest)
        return (*outer, *rest)

    @field_validator("time_step_limit", mode="before")
    @classmethod
    def _no_bound_is_none(cls, limits: object) -> object:
        if not isinstance(limits, list | tuple) or len(limits) != 2:
            raise ValueError("two numbers")
        return tuple(_bound(limit) for limit in limits)

    @model_validator(mode="after")
    def _each_kind_of_block_has_its_keys(self) -> Self:
        for kind, keys in _NEEDED.items():
            for key in keys if any(block.kind == kind for block in self.blocks) else ():
                if getattr(self, key) is None:
                    raise ValueError(f"a config with {key!r}, which its {kind} blocks need")
        return self

    @model_validator(mode="after")
    def _heads_group_evenly(self) -> Self:
        for many, few in (
            ("num_attention_heads", "num_key_value_heads"),
            ("mamba_num_heads", "n_groups"),
        ):
            whole, parts = getattr(self, many), getattr(self, few)
            if whole is not None and parts is not None and whole % parts:
                raise ValueError(f"{many} ({whole}) to be a multiple of {few} ({parts})")
        return self

    @model_validator(mode="after")
    def _steps_have_a_range(self) -> Self:
        least, largest = self.time_step_limit
        if least < 0 or (largest is not None and largest < least):
            raise ValueError(
                f"a config whose 'time_step_limit' is two numbers from 0 on, the smaller first, not "
                f"{list(self.time_step_limit)}"
            )
        return self

    @model_validator(mode="after")
    def _activations_are_built(self) -> Self:
        if self.mlp_hidden_act != "relu2":
            raise ValueError(f"'relu2' as 'mlp_hidden_act', not {self.mlp_hidden_act!r}")
        if self.mamba_hidden_act not in ("silu", "swish"):
            raise ValueError(f"'silu' as 'mamba_hidden_act', not {self.mamba_hidden_act!r}")
        return self

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Ask the file for the biases, which the config may contradict, for a head and towers."""
        names = checkpoint.tensors

        def held(*ends: str) -> bool:
            return any(name.endswith(ends) for name in names)

        return self.model_copy(
            update={
                "attention_bias": held(".mixer.q_proj.bias"),
                "mlp_bias": held(".up_proj.bias", "_latent_proj.bias"),
                "mamba_bias": held(".mixer.in_proj.bias"),
                "use_conv_bias": held(".mixer.conv1d.bias"),
                # The reference knows the key and never ties: a head in the file is the head. One
                # that the key speaks of and the file does not hold is for the loader to miss.
                "tie_word_embeddings": self.tie_word_embeddings is not False
                and not held("lm_head.weight"),
                "vision": settled_vision(self.vision, checkpoint),
                "sound": settled_sound(self.sound, checkpoint),
            }
        )

    @property
    def context_length(self) -> int | None:
        """How many tokens the model was made for."""
        return self.max_position_embeddings


_NEEDED: Mapping[BlockKind, tuple[str, ...]] = {
    "mamba": ("mamba_num_heads", "mamba_head_dim", "ssm_state_size"),
    "attention": ("num_attention_heads",),
    "mlp": ("intermediate_size",),
}


def _blocks(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kinds of the blocks, and the numbers of those that are mixtures of experts."""
    blocks: list[dict[str, Any]] = []
    for key, name, own in _described(raw):
        kind = (_LETTERS if key == "hybrid_override_pattern" else _WORDS).get(str(name))
        if kind is None:
            raise ValueError(f"a config with {key!r} of known blocks, not {name!r}")
        # What the config says for all, under what it says for this block.
        experts = {**raw, **{k: v for k, v in own.items() if v is not None}}
        blocks.append({"kind": kind, "experts": experts if kind == "moe" else None})
    return blocks


def _has(blocks: Sequence[Mapping[str, Any]], kind: BlockKind) -> bool:
    return any(block["kind"] == kind for block in blocks)


def _described(raw: Mapping[str, Any]) -> list[tuple[str, object, Mapping[str, Any]]]:
    """For each block the key that tells its kind, the kind's name, and what is its own."""
    for key in ("block_configs", "layers_block_type", "layer_types", "hybrid_override_pattern"):
        found = raw.get(key)
        if found is None:
            continue
        if not isinstance(found, Sequence) or isinstance(found, str) != key.endswith("pattern"):
            raise ValueError(
                f"a config with a {'string' if 'pattern' in key else 'list'} as {key!r}"
            )
        count = raw.get("num_hidden_layers")
        if key.endswith("pattern") and type(count) is int and count != len(found):
            raise ValueError(
                f"a config whose 'num_hidden_layers' ({count}) is the number of blocks in {key!r} "
                f"({len(found)})"
            )
        if key != "block_configs":
            return [(key, name, {}) for name in found]
        if not all(isinstance(block, Mapping) for block in found):
            raise ValueError("a config with a list of objects as 'block_configs'")
        return [(key, block.get("block_type"), block) for block in found]
    raise ValueError("a config with 'hybrid_override_pattern' (or 'layers_block_type')")


def _bound(limit: object) -> object:
    """A bound of the step size as JSON has it; transformers 5 writes `{"__float__": "Infinity"}`."""
    if isinstance(limit, Mapping) and isinstance(limit.get("__float__"), str):
        limit = float(limit["__float__"])
    return None if limit == math.inf else limit
