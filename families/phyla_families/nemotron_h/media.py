"""What a checkpoint of Nemotron Omni can read beside text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phyla.family import MediaReaders
from phyla_families.nemotron_h.audio_reader import AudioReader
from phyla_families.nemotron_h.image_reader import ImageReader
from phyla_families.nemotron_h.preprocessing import image_settings, mel_settings, video_settings
from phyla_families.nemotron_h.video_reader import VideoReader

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.nemotron_h.config import Config


def media(config: Config, checkpoint: Checkpoint) -> MediaReaders:
    """Pictures, videos and sounds, where there are towers for them.

    Raises:
        CheckpointError: a preprocessor file cannot be read, or is not about these towers.
    """
    vision, sound = config.vision, config.sound
    image = video = audio = None
    if vision is not None:
        image = ImageReader(image_settings(checkpoint, vision), vision.patch_size)
        if vision.span is not None:
            settings = video_settings(checkpoint, vision)
            video = VideoReader(settings, vision.patch_size, vision.span)
    if sound is not None:
        settings = mel_settings(checkpoint, sound)
        audio = AudioReader(settings, sound.num_mel_bins, sound.subsampling_factor)
    return MediaReaders(image=image, audio=audio, video=video)
