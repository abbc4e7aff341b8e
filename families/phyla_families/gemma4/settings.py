"""What the preprocessor files of a checkpoint say; what they leave out is as upstream has it.

Converted checkpoints often lack the files, or the part for audio (Blaizzy/mlx-vlm#903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, field_validator, model_validator

from phyla.family import PREPROCESSOR_FILE, VIDEO_FILE, MediaSettings, Preprocessing
from phyla_families.gemma4.sizes import BUDGETS

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla.family import Section


class ImageSettings(MediaSettings):
    """`image_processor`, or preprocessor_config.json.

    Attributes:
        patch_size: as in config.json, where it is there at all,
        pooling_kernel_size: likewise.
        max_soft_tokens: the usual budget.
        resample: Pillow's number of the filter; 3 is bicubic.
    """

    patch_size: int | None = Field(default=None, gt=0)
    pooling_kernel_size: int | None = Field(default=None, gt=0)
    max_soft_tokens: int = 280
    resample: int = Field(default=3, ge=0, le=5)
    do_normalize: bool = False
    image_mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    image_std: tuple[float, ...] = (1.0, 1.0, 1.0)

    @field_validator("max_soft_tokens")
    @classmethod
    def _is_a_budget(cls, count: int) -> int:
        if count not in BUDGETS:
            raise ValueError(f"one of {', '.join(map(str, BUDGETS))}")
        return count

    @model_validator(mode="after")
    def _the_tower_scales_pixels(self) -> Self:
        if self.do_normalize and (
            any(self.image_mean) or any(each != 1 for each in self.image_std)
        ):
            raise ValueError("an 'image_mean' of 0 and an 'image_std' of 1, as the tower expects")
        return self


class VideoSettings(ImageSettings):
    """`video_processor`, or video_preprocessor_config.json.

    Attributes:
        num_frames: how many frames are looked at,
        fps: or how many for each second.
        do_sample_frames: whether not all are.
    """

    max_soft_tokens: int = 70
    num_frames: int = Field(default=32, gt=0)
    fps: float | None = Field(default=None, gt=0)
    do_sample_frames: bool = True


class MelSettings(MediaSettings):
    """`feature_extractor`, or preprocessor_config.json, of a model with an audio tower.

    Attributes:
        feature_size: the number of mel bins.
        sampling_rate: in samples per second.
        frame_length_ms: the length of a frame.
        hop_length_ms: from one frame to the next.
        fft_overdrive: the transform is twice as long as a frame needs.
        min_frequency: where the lowest bin begins, in hertz.
        max_frequency: where the highest ends.
        input_scale_factor: multiplies the samples.
        mel_floor: added before the logarithm.
        per_bin_mean: subtracted from each bin.
        per_bin_stddev: each bin is divided by it.
        preemphasis: not built; no Gemma 4 has any.
    """

    feature_size: int = Field(default=128, gt=0)
    sampling_rate: int = Field(default=16_000, gt=0)
    frame_length_ms: float = Field(default=20.0, gt=0)
    hop_length_ms: float = Field(default=10.0, gt=0)
    fft_overdrive: bool = False
    min_frequency: float = Field(default=0.0, ge=0)
    max_frequency: float = Field(default=8000.0, gt=0)
    input_scale_factor: float = 1.0
    mel_floor: float = Field(default=1e-3, gt=0)
    per_bin_mean: tuple[float, ...] | None = None
    per_bin_stddev: tuple[float, ...] | None = None
    preemphasis: float = Field(default=0.0, ge=0, le=0)

    @model_validator(mode="after")
    def _frames_and_bins_fit(self) -> Self:
        for name, ms in (("frame", self.frame_length_ms), ("hop", self.hop_length_ms)):
            if round(self.sampling_rate * ms / 1000) < 1:
                raise ValueError(f"a '{name}_length_ms' of at least one sample, not {ms}")
        if not self.min_frequency < self.max_frequency <= self.sampling_rate / 2:
            raise ValueError(
                f"frequencies that rise from 'min_frequency' ({self.min_frequency}) to "
                f"'max_frequency' ({self.max_frequency}), at most half of 'sampling_rate' "
                f"({self.sampling_rate})"
            )
        for key, values in (("mean", self.per_bin_mean), ("stddev", self.per_bin_stddev)):
            if values is not None and len(values) != self.feature_size:
                raise ValueError(
                    f"a 'per_bin_{key}' of {self.feature_size} numbers, not {len(values)}"
                )
        if 0 in (self.per_bin_stddev or ()):
            raise ValueError("a 'per_bin_stddev' without zeros")
        return self


class SampleSettings(MediaSettings):
    """`feature_extractor`, or preprocessor_config.json, of the encoder-free model."""

    sampling_rate: int = Field(default=16_000, gt=0)
    audio_samples_per_token: int | None = Field(default=None, gt=0)


def image_settings(checkpoint: Checkpoint) -> Section[ImageSettings]:
    """Read the settings of images.

    Raises:
        CheckpointError: they are not what they should be; names file and key.
    """
    return Preprocessing(checkpoint).section(ImageSettings, "image_processor", PREPROCESSOR_FILE)


def video_settings(checkpoint: Checkpoint) -> Section[VideoSettings]:
    """Read the settings of videos.

    Raises:
        CheckpointError: they are not what they should be; names file and key.
    """
    return Preprocessing(checkpoint).section(VideoSettings, "video_processor", VIDEO_FILE)


def mel_settings(checkpoint: Checkpoint) -> Section[MelSettings]:
    """Read the settings of sounds, of a model with a tower for them.

    Raises:
        CheckpointError: they are not what they should be; names file and key.
    """
    return Preprocessing(checkpoint).section(MelSettings, "feature_extractor", PREPROCESSOR_FILE)


def sample_settings(checkpoint: Checkpoint) -> Section[SampleSettings]:
    """Read the settings of sounds, of the encoder-free model.

    Raises:
        CheckpointError: they are not what they should be; names file and key.
    """
    return Preprocessing(checkpoint).section(SampleSettings, "feature_extractor", PREPROCESSOR_FILE)
