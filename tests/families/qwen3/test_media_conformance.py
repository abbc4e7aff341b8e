"""Pictures and videos through the engine: what is remembered changes no reply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from phyla.testing import MARKS, read_tiny
from phyla.testing.sight import MediaConformance, sights, template

BRANCHES = {
    name: replace(
        tiny,
        chat_template=template(
            image="<|vision_start|><|image_pad|><|vision_end|>",
            video="<|vision_start|><|video_pad|><|vision_end|>",
        ),
        marks=(*MARKS, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
        preprocessing={
            "preprocessor_config.json": {
                "size": {"shortest_edge": 64, "longest_edge": 2560},
                "patch_size": 4,
                "merge_size": 2,
                "temporal_patch_size": 2,
            },
            "video_preprocessor_config.json": {
                "size": {"shortest_edge": 64, "longest_edge": 4096},
                "patch_size": 4,
                "merge_size": 2,
                "temporal_patch_size": 2,
            },
        },
    )
    for name, tiny in read_tiny(Path(__file__).with_name("media.json")).items()
}

seeing = sights(BRANCHES)


class TestConformance(MediaConformance):
    pass
