"""What the preprocessor files say about pictures, videos and sounds, as values that were checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AliasChoices, Field, model_validator

from phyla_families.nemotron_h.omni_config import MERGE
from phyla_families.nemotron_h.settings_source import Settings, read_settings

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla_families.nemotron_h.omni_config import SoundConfig, VisionConfig
    from phyla_families.nemotron_h.settings_source import SettingsSource

_Channels = tuple[float, float, float]
_Positive = Annotated[float, Field(gt=0)]
_Deviation = tuple[_Positive, _Positive, _Positive]

_OWN = "preprocessor_config.json"
_VIDEO = "video_preprocessor_config.json"

# CLIP's.
_MEAN: _Channels = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION: _Channels = (0.26862954, 0.26130258, 0.27577711)


class _Pixels(Settings):
    """What pictures and frames share.

    Attributes:
        patch_size: None where the file does not say; the tower decides.
        mean: subtracted from pixels between 0 and 1, for each colour,
        deviation: and what they are divided by then.
    """

    patch_size: int | None = Field(default=None, gt=0)
    downsample_ratio: float = Field(default=1 / MERGE, gt=0)
    mean: _Channels = _MEAN
    deviation: _Deviation = _DEVIATION

    @property
    def scale(self) -> _Channels:
        """What pixels from 0 to 255 are multiplied by, for each colour."""
        factor = self._factor
        red, green, blue = (factor / each for each in self._statistics[1])
        return red, green, blue

    @property
    def shift(self) -> _Channels:
        """What is added to them after that."""
        red, green, blue = (-mean / each for mean, each in zip(*self._statistics, strict=True))
        return red, green, blue

    @property
    def _factor(self) -> float:
        return 1 / 255

    @property
    def _statistics(self) -> tuple[_Channels, _Channels]:
        return self.mean, self.deviation


class ImageSettings(_Pixels):
    """Keys of Nemotron Omni's image processor, with its defaults.

    Attributes:
        min_num_patches: a smaller picture is made larger.
        max_num_patches: the most patches of a picture; 0 for no bound.
        max_model_len: soft tokens, of which the text around a picture needs a few, that bound it too.
        resample: Pillow's number of a filter; 3 is bicubic.
    """

    mean: _Channels = Field(default=_MEAN, validation_alias=AliasChoices("image_mean", "norm_mean"))
    deviation: _Deviation = Field(
        default=_DEVIATION, validation_alias=AliasChoices("image_std", "norm_std")
    )
    min_num_patches: int = Field(default=1024, gt=0)
    max_num_patches: int = Field(default=13312, ge=0)
    max_model_len: int = Field(default=16384, gt=0)
    resample: int = Field(default=3, ge=0, le=5)
    do_rescale: bool = True
    rescale_factor: float = Field(default=1 / 255, gt=0)
    do_normalize: bool = True

    @property
    def most_patches(self) -> int:
        """The most patches of a picture."""
        room = max((self.max_model_len - 4) * MERGE**2, self.min_num_patches)
        bounded = min(room, self.max_num_patches) if self.max_num_patches else room
        return max(bounded, self.min_num_patches)

    @property
    def _factor(self) -> float:
        return self.rescale_factor if self.do_rescale else 1.0

    @property
    def _statistics(self) -> tuple[_Channels, _Channels]:
        if self.do_normalize:
            return self.mean, self.deviation
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


class VideoSettings(_Pixels):
    """Keys of Nemotron Omni's video processor.

    Published files say nothing of which frames to look at; then it is two for each second, and
    no more than 128 in all.

    Attributes:
        target: `video_target_num_patches`, about what each frame gets.
        keep_ratio: whether frames stay as wide as they are high; else they are made square.
        temporal_patch_size: None where the file does not say.
        num_frames: so many frames are looked at,
        fps: or so many for each second.
        do_sample_frames: whether not all are.
    """

    mean: _Channels = Field(default=_MEAN, validation_alias="norm_mean")
    deviation: _Deviation = Field(default=_DEVIATION, validation_alias="norm_std")
    target: int = Field(default=1024, gt=0, validation_alias="video_target_num_patches")
    keep_ratio: bool = Field(default=True, validation_alias="video_maintain_aspect_ratio")
    temporal_patch_size: int | None = Field(default=None, gt=1)
    num_frames: int | None = Field(default=None, gt=0)
    fps: float = Field(default=2.0, gt=0)
    do_sample_frames: bool = True


class MelSettings(Settings):
    """Keys of ParakeetFeatureExtractor, with its defaults.

    Attributes:
        feature_size: mel bins; None where the file does not say, and the encoder decides.
        sampling_rate: in samples per second.
        hop_length: samples from one frame to the next.
        n_fft: samples of a frame; the window lies in their middle.
        win_length: samples of the window.
        preemphasis: so much of the sample before is subtracted from each one.
    """

    feature_size: int | None = Field(default=None, gt=0)
    sampling_rate: int = Field(default=16000, gt=0)
    hop_length: int = Field(default=160, gt=0)
    n_fft: int = Field(default=512, gt=0)
    win_length: int = Field(default=400, gt=1)
    preemphasis: float = Field(default=0.97, ge=0, lt=1)

    @model_validator(mode="after")
    def _the_window_fits(self) -> Self:
        if self.win_length > self.n_fft or self.n_fft % 2:
            raise ValueError(
                f"an even 'n_fft' of at least 'win_length' ({self.win_length}), not {self.n_fft}"
            )
        return self


def image_settings(checkpoint: Checkpoint, vision: VisionConfig) -> ImageSettings:
    """Read what the checkpoint says about pictures.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    settings, source = read_settings(ImageSettings, checkpoint, "image_processor", (_OWN,))
    _check_tower(settings, source, vision)
    return settings


def video_settings(checkpoint: Checkpoint, vision: VisionConfig) -> VideoSettings:
    """Read what the checkpoint says about videos; transformers, too, falls back on pictures' file.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    settings, source = read_settings(VideoSettings, checkpoint, "video_processor", (_VIDEO, _OWN))
    _check_tower(settings, source, vision)
    source.check("temporal_patch_size", settings.temporal_patch_size, vision.span)
    return settings


def mel_settings(checkpoint: Checkpoint, sound: SoundConfig) -> MelSettings:
    """Read what the checkpoint says about sounds.

    Raises:
        CheckpointError: it cannot be read, or it is not about this encoder.
    """
    settings, source = read_settings(MelSettings, checkpoint, "feature_extractor", (_OWN,))
    source.check("feature_size", settings.feature_size, sound.num_mel_bins)
    return settings


def _check_tower(settings: _Pixels, source: SettingsSource, vision: VisionConfig) -> None:
    source.check("patch_size", settings.patch_size, vision.patch_size)
    source.check("downsample_ratio", settings.downsample_ratio, 1 / MERGE)
