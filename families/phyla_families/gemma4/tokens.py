"""The tokens that stand for media and around them, by their text; they are one in every file."""

from __future__ import annotations

IMAGE, IMAGE_BEGIN, IMAGE_END = "<|image|>", "<|image>", "<image|>"
AUDIO, AUDIO_BEGIN, AUDIO_END = "<|audio|>", "<|audio>", "<audio|>"
# The frames of a video begin and end as images do.
VIDEO = "<|video|>"
