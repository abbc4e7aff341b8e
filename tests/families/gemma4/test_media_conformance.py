"""Pictures, videos and sounds through the engine: what is remembered changes no reply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from phyla.testing import MARKS, read_tiny
from phyla.testing.sight import MediaConformance, sights, template

# In the order of the ids in media_tiny.json.
PLACES = (
    "<|image|>", "<|audio|>", "<|video|>", "<|image>", "<image|>", "<|audio>", "<audio|>",
)  # fmt: skip
TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))

seeing = sights(
    {
        name: replace(
            TABLE[name],
            config={
                **TABLE[name].config,
                "text_config": {
                    **TABLE[name].config["text_config"],
                    "max_position_embeddings": 2048,
                },
            },
            chat_template=template(image="<|image|>", audio="<|audio|>", video="<|video|>"),
            marks=(*MARKS, *PLACES),
            preprocessing={"preprocessor_config.json": {"max_soft_tokens": 70}},
        )
        for name in ("towers without bounds", "encoder-free")
    }
)


class TestConformance(MediaConformance):
    pass
