"""The readers of a checkpoint's media, made from its config and its preprocessor files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import MediaReaders
from phyla_families.gemma4.audio_reader import AudioReader, MelReader, SampleReader
from phyla_families.gemma4.image_reader import ImageReader, Look
from phyla_families.gemma4.media_config import ConformerConfig
from phyla_families.gemma4.settings import (
    ImageSettings,
    MelSettings,
    SampleSettings,
    VideoSettings,
    check_same,
    read_settings,
)
from phyla_families.gemma4.video_reader import Sampling, VideoReader

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.gemma4.config import Config
    from phyla_families.gemma4.media_config import PatchesConfig, SamplesConfig, TowerConfig


def media(config: Config, checkpoint: Checkpoint) -> MediaReaders:
    """What the checkpoint reads; a settled config says which modalities it has weights for.

    Raises:
        CheckpointError: a preprocessor file is not what it should be.
    """
    vision, audio = config.vision, config.audio
    return MediaReaders(
        image=None if vision is None else _images(vision, checkpoint),
        audio=None if audio is None else _audio(audio, checkpoint),
        video=None if vision is None else _videos(vision, checkpoint),
    )


def _images(vision: TowerConfig | PatchesConfig, checkpoint: Checkpoint) -> ImageReader:
    return ImageReader(_look(vision, read_settings(ImageSettings, checkpoint), checkpoint))


def _videos(vision: TowerConfig | PatchesConfig, checkpoint: Checkpoint) -> VideoReader:
    settings = read_settings(VideoSettings, checkpoint)
    sampling = Sampling(
        frames=settings.num_frames if settings.do_sample_frames else None,
        fps=settings.fps if settings.do_sample_frames else None,
    )
    return VideoReader(_look(vision, settings, checkpoint), sampling)


def _look(
    vision: TowerConfig | PatchesConfig, settings: ImageSettings, checkpoint: Checkpoint
) -> Look:
    kind = type(settings)
    check_same(checkpoint, kind, "patch_size", settings.patch_size, vision.patch_size)
    check_same(
        checkpoint, kind, "pooling_kernel_size",
        settings.pooling_kernel_size, vision.pooling_kernel_size,
    )  # fmt: skip
    return Look(
        side=vision.side,
        longest=vision.longest,
        budget=settings.max_soft_tokens,
        resample=settings.resample,
    )


def _audio(audio: ConformerConfig | SamplesConfig, checkpoint: Checkpoint) -> AudioReader:
    if isinstance(audio, ConformerConfig):
        mel = read_settings(MelSettings, checkpoint)
        check_same(checkpoint, MelSettings, "feature_size", mel.feature_size, audio.bins)
        return MelReader(mel)
    raw = read_settings(SampleSettings, checkpoint)
    width = audio.audio_embed_dim
    check_same(
        checkpoint, SampleSettings, "audio_samples_per_token", raw.audio_samples_per_token, width
    )
    return SampleReader(raw.sampling_rate, width)
