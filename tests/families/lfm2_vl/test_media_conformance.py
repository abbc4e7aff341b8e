from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from phyla.testing import read_tiny
from phyla.testing.sight import MediaConformance, sights
from phyla.testing.sighted import SIGHTED_TEMPLATE
from phyla.testing.tokenizer import MARKS

if TYPE_CHECKING:
    from phyla.engine.engine import Engine

TINY = read_tiny(Path(__file__).with_name("tiny.json"))["text of a vision model"]
TINY = dataclasses.replace(
    TINY,
    config={
        **TINY.config,
        "text_config": {**TINY.config["text_config"], "max_position_embeddings": 2048},
    },
    chat_template=SIGHTED_TEMPLATE,
    marks=(*MARKS, "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
)
NORMED = dataclasses.replace(TINY, config={**TINY.config, "projector_use_layernorm": True})

seeing = sights({"plain": TINY, "layer norm": NORMED})


class TestMedia(MediaConformance):
    def test_a_large_picture_is_read_in_tiles(self, engine: Engine) -> None:
        pixels = np.zeros((800, 800, 3), np.uint8)
        pixels[:400] = 200
        prompt = engine.encode(
            [{"role": "user", "content": [{"type": "image", "source": pixels, "max_tokens": 800}]}]
        )
        (item,) = prompt.media
        assert len(item.runs) == 3
        assert sum(run.stop - run.start for run in item.runs) == 3 * 256
