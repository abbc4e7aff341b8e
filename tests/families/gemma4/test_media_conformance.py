"""Pictures, videos and sounds through the engine: what is remembered changes no reply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import phyla
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


def test_embeddings_alone_are_refused_where_each_layer_looks_up_ids(tmp_path: Path) -> None:
    table = read_tiny(Path(__file__).with_name("tiny.json"))
    seen = set()
    for number, tiny in enumerate(table.values()):
        text = tiny.config.get("text_config", tiny.config)
        own = bool(text.get("hidden_size_per_layer_input"))
        if own in seen:
            continue
        seen.add(own)
        engine = phyla.load(tiny.write(tmp_path / str(number)))
        with engine, engine.session() as session:
            rows = np.zeros((2, text["hidden_size"]), np.float32)
            if own:
                with pytest.raises(phyla.RequestError, match="ids"):
                    session.append_embeddings(rows)
            else:
                assert session.append_embeddings(rows) == 2
    assert seen == {True, False}
