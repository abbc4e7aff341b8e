"""Pictures, videos and sounds through the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import phyla
from phyla.testing import MARKS, Tiny, read_tiny
from phyla.testing.sight import MediaConformance, image, template, user
from phyla.testing.tokenizer import vocabulary_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from phyla.engine.engine import Engine

TABLE = read_tiny(Path(__file__).with_name("media_tiny.json"))
PLACES = ("<image>", "<video>", "<so_embedding>", "<img>", "</img>", "<so_start>", "<so_end>")
TEMPLATE = template(image="<image>", video="<video>", audio="<so_embedding>")
SMALL = {"min_num_patches": 16, "max_num_patches": 64, "video_target_num_patches": 16}


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    config, marks = TABLE["everything"].config, (*MARKS, *PLACES)
    # As many as the tokenizer has: others are never chosen.
    rows = {"vocab_size": vocabulary_size(marks)}
    config = {**config, **rows, "llm_config": {**config["llm_config"], **rows}}
    tiny = Tiny("omni", config, TEMPLATE, marks)
    folder = tiny.write(tmp_path_factory.mktemp("sight") / "tiny")
    (folder / "preprocessor_config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    with phyla.load(folder, dtype="float32") as engine:
        yield engine


class TestConformance(MediaConformance):
    pass


def test_a_picture_stands_between_its_marks(seeing: Engine) -> None:
    assert seeing.capabilities == phyla.Capabilities(image=True, audio=True, video=True)
    prompt = seeing.encode([user(image(1))])
    assert "<image>" in prompt.text
    (placed,) = prompt.media
    assert placed.item.plan.pieces[::2] == ("<img>", "</img>")
    assert prompt.ids[placed.start - 1] == 256 + 3 + len(MARKS) + PLACES.index("<img>")
    assert placed.stop - placed.start == placed.item.plan.count <= 16
