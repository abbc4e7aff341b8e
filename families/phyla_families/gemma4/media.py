"""The readers of a checkpoint's media, made from its config and its preprocessor files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import MediaReaders
from phyla_families.gemma4.audio_reader import AudioReader, MelReader, SampleReader
from phyla_families.gemma4.image_reader import ImageReader, Look
from phyla_families.gemma4.media_config import ConformerConfig
from phyla_families.gemma4.settings import (
    image_settings,
    mel_settings,
    sample_settings,
    video_settings,
)
from phyla_families.gemma4.video_reader import Sampling, VideoReader

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla.family import Section
    from phyla_families.gemma4.config import Config
    from phyla_families.gemma4.media_config import PatchesConfig, SamplesConfig, TowerConfig
    from phyla_families.gemma4.settings import ImageSettings, VideoSettings


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
    return ImageReader(_look(vision, image_settings(checkpoint)))


def _videos(vision: TowerConfig | PatchesConfig, checkpoint: Checkpoint) -> VideoReader:
    section = video_settings(checkpoint)
    settings = section.settings
    sampling = Sampling(
        frames=settings.num_frames if settings.do_sample_frames else None,
        fps=settings.fps if settings.do_sample_frames else None,
    )
    return VideoReader(_look(vision, section), sampling)


def _look(
    vision: TowerConfig | PatchesConfig, section: Section[ImageSettings] | Section[VideoSettings]
) -> Look:
    section.check("patch_size", vision.patch_size)
    section.check("pooling_kernel_size", vision.pooling_kernel_size)
    return Look(
        side=vision.side,
        longest=vision.longest,
        budget=section.settings.max_soft_tokens,
        resample=section.settings.resample,
    )


def _audio(audio: ConformerConfig | SamplesConfig, checkpoint: Checkpoint) -> AudioReader:
    if isinstance(audio, ConformerConfig):
        mel = mel_settings(checkpoint)
        mel.check("feature_size", audio.bins)
        return MelReader(mel.settings)
    raw = sample_settings(checkpoint)
    raw.check("audio_samples_per_token", audio.audio_embed_dim)
    return SampleReader(raw.settings.sampling_rate, audio.audio_embed_dim)
