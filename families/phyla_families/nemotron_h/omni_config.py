"""The towers of Nemotron Omni in config.json: C-RADIO for pictures, Parakeet for sounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint

# Its pictures are cut into tiles, by code that no public library checks; only its text is read.
_TILED = "NemotronH_Nano_VL_V2"

# So many patches by so many become one soft token.
MERGE = 2

_VIDEO_EMBEDDERS = (".patch_generator.video_embedder.", ".embeddings.video_patch_projection.")


class _Part(BaseModel):
    """A key that is null counts as absent."""

    model_config = ConfigDict(
        frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        return {key: value for key, value in keys.items() if value is not None}


class VisionConfig(_Part):
    """RadioConfig, with its defaults, and what stands around the tower.

    Published files hold the arguments of C-RADIO's training and no sizes; those are the defaults.

    Attributes:
        max_img_size: pixels along a side of what the learned positions cover.
        num_cls_tokens: learned tokens before the patches,
        num_registers: and more of them.
        span: `video_temporal_patch_size`: so many frames make a patch of a video; None where there
            is no embedding for them.
        projector_hidden_size: width inside the projector.
        final_norm: whether a LayerNorm follows the tower, as it does beside a text part with MTP.
        layer_scale: whether branches have factors; `settle` asks the file, C-RADIO has none.
    """

    hidden_size: int = Field(default=1280, gt=0)
    num_hidden_layers: int = Field(default=32, gt=0)
    num_attention_heads: int = Field(default=16, gt=0)
    mlp_ratio: float = Field(default=4.0, gt=0)
    hidden_act: str = "gelu"
    layer_norm_eps: float = Field(default=1e-6, gt=0)
    use_swiglu_ffn: bool = False
    qkv_bias: bool = True
    num_channels: int = 3
    patch_size: int = Field(default=16, gt=0)
    max_img_size: int = Field(default=2048, gt=0)
    num_cls_tokens: int = Field(default=3, ge=0)
    num_registers: int = Field(default=7, ge=0)
    span: int | None = Field(default=None, gt=1, validation_alias="video_temporal_patch_size")
    projector_hidden_size: int = Field(default=4096, gt=0)
    final_norm: bool = False
    layer_scale: bool = False

    @model_validator(mode="after")
    def _is_a_tower_that_is_built(self) -> Self:
        for key, built in (
            ("hidden_act", "gelu"),
            ("use_swiglu_ffn", False),
            ("qkv_bias", True),
            ("num_channels", 3),
        ):
            if getattr(self, key) != built:
                raise ValueError(f"a tower with {built!r} as {key!r}, not {getattr(self, key)!r}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"a tower whose 'hidden_size' ({self.hidden_size}) is a multiple of "
                f"'num_attention_heads' ({self.num_attention_heads})"
            )
        if self.side < 1:
            raise ValueError(
                f"a tower whose 'max_img_size' ({self.max_img_size}) holds a patch of "
                f"{self.patch_size} pixels"
            )
        return self

    @property
    def prefix(self) -> int:
        """How many learned tokens stand before the patches."""
        return self.num_cls_tokens + self.num_registers

    @property
    def side(self) -> int:
        """Rows, and columns, of the table of learned positions."""
        return self.max_img_size // self.patch_size

    @property
    def intermediate_size(self) -> int:
        """Width inside the MLPs."""
        return int(self.hidden_size * self.mlp_ratio)


class SoundConfig(_Part):
    """ParakeetEncoderConfig as Omni has it: without biases of linear layers, input not scaled.

    Unlike elsewhere, the keys decide about biases and not the file: published files hold biases of
    convolutions that the config switches off.

    Attributes:
        projection_hidden_size: width inside the projector,
        projection_bias: and whether it has biases.
    """

    hidden_size: int = Field(default=1024, gt=0)
    num_hidden_layers: int = Field(default=24, gt=0)
    num_attention_heads: int = Field(default=8, gt=0)
    intermediate_size: int = Field(default=4096, gt=0)
    hidden_act: str = "silu"
    attention_bias: bool = False
    convolution_bias: bool = True
    conv_kernel_size: int = Field(default=9, gt=0)
    subsampling_factor: int = Field(default=8, gt=1)
    subsampling_conv_channels: int = Field(default=256, gt=0)
    subsampling_conv_kernel_size: int = 3
    subsampling_conv_stride: int = 2
    num_mel_bins: int = Field(default=80, gt=0)
    scale_input: bool = False
    projection_hidden_size: int = Field(gt=0)
    projection_bias: bool = False

    @model_validator(mode="after")
    def _is_an_encoder_that_is_built(self) -> Self:
        for key, built in (
            ("hidden_act", "silu"),
            ("subsampling_conv_kernel_size", 3),
            ("subsampling_conv_stride", 2),
        ):
            if getattr(self, key) != built:
                raise ValueError(f"an encoder with {built!r} as {key!r}, not "
                                 f"{getattr(self, key)!r}")  # fmt: skip
        if self.hidden_size % self.num_attention_heads or self.hidden_size % 2:
            raise ValueError(
                f"an encoder whose 'hidden_size' ({self.hidden_size}) is even and a multiple of "
                f"'num_attention_heads' ({self.num_attention_heads})"
            )
        if self.conv_kernel_size % 2 == 0:
            raise ValueError(f"an odd 'conv_kernel_size', not {self.conv_kernel_size}")
        factor = self.subsampling_factor
        if factor & (factor - 1) or self.num_mel_bins % factor:
            raise ValueError(
                f"an encoder whose 'subsampling_factor' ({factor}) is a power of two and divides "
                f"'num_mel_bins' ({self.num_mel_bins})"
            )
        return self

    @property
    def halvings(self) -> int:
        """How often time and frequency are halved before the first layer."""
        return self.subsampling_factor.bit_length() - 1


def media_keys(whole: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """The towers' keys of config.json, in one object for each tower.

    Raises:
        ValueError: keys contradict one another; for a validator of the config to raise.
    """
    if whole is text or whole.get("model_type") == _TILED:
        return {}
    parts: dict[str, Any] = {}
    vision = whole.get("vision_config")
    if vision is not None:
        parts["vision"] = _vision(whole, text, vision)
    sound = _either(whole, "audio_config", "sound_config")
    if sound is not None:
        parts["sound"] = sound
    return parts


def _vision(whole: Mapping[str, Any], text: Mapping[str, Any], vision: object) -> object:
    if not isinstance(vision, Mapping):
        return vision
    keys = cast("Mapping[str, Any]", vision)
    ratio = whole.get("downsample_ratio", 1 / MERGE)
    if ratio != 1 / MERGE:
        raise ValueError(f"a config with {1 / MERGE} as 'downsample_ratio', not {ratio!r}")
    order = whole.get("ps_version", "v2")
    if order != "v2":
        raise ValueError(f"a config with 'v2' as 'ps_version', not {order!r}")
    span = whole.get("video_temporal_patch_size", 2)
    own = keys.get("video_temporal_patch_size", span)
    if own != span:
        raise ValueError(
            f"a config whose 'video_temporal_patch_size' ({span}) is that of its 'vision_config' "
            f"({own})"
        )
    width = _either(whole, "vision_hidden_size", "vit_hidden_size")
    if width is not None and width != keys.get("hidden_size", 1280):
        raise ValueError(
            f"a config whose 'vit_hidden_size' ({width}) is the 'hidden_size' of its "
            f"'vision_config' ({keys.get('hidden_size', 1280)})"
        )
    return {
        "projector_hidden_size": whole.get("projector_hidden_size"),
        "final_norm": bool(text.get("num_nextn_predict_layers")),
        **keys,
        "video_temporal_patch_size": own,
    }


def _either(keys: Mapping[str, Any], newer: str, older: str) -> Any:
    found = keys.get(newer)
    return keys.get(older) if found is None else found


def settled_vision(vision: VisionConfig | None, checkpoint: Checkpoint) -> VisionConfig | None:
    """Ask the file whether there is a tower, and which of its optional parts."""
    names = checkpoint.tensors
    if vision is None or not any(name.startswith("vision_model.") for name in names):
        return None
    films = any(part in name for name in names for part in _VIDEO_EMBEDDERS)
    return vision.model_copy(
        update={
            "span": vision.span if films else None,
            "final_norm": any("vision_final_layernorm." in name for name in names),
            "layer_scale": any(name.endswith(".layer_scale1.lambda1") for name in names),
        }
    )


def settled_sound(sound: SoundConfig | None, checkpoint: Checkpoint) -> SoundConfig | None:
    """Ask the file whether there is an encoder."""
    prefixes = ("sound_encoder.", "audio_tower.")
    held = any(name.startswith(prefixes) for name in checkpoint.tensors)
    return sound if held else None
