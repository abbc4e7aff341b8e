"""Pictures and videos through the engine: what is remembered changes no reply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from phyla.testing import MARKS, read_tiny
from phyla.testing.sight import MediaConformance, image, sights, template, user
from phyla.testing.tokenizer import BYTE_TOKENS

if TYPE_CHECKING:
    from phyla.engine.engine import Engine

PLACES = (
    "<|image_pad|>", "<|video_pad|>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>",
    "</image_id>",
)  # fmt: skip
FIRST = BYTE_TOKENS + 3 + len(MARKS)
IDS = {
    "image_token_id": FIRST,
    "video_token_id": FIRST + 1,
    "image_start_id": FIRST + 2,
    "image_end_id": FIRST + 3,
    "slice_start_id": FIRST + 4,
    "slice_end_id": FIRST + 5,
    "newline_id": ord("\n"),
}
TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "image_size": 448, "patch_size": 14,
}  # fmt: skip

seeing = sights(
    {
        name: replace(
            TABLE[name],
            config={
                **TABLE[name].config,
                **(IDS if name.startswith("4.7") else {k: IDS[k] for k in list(IDS)[:2]}),
                "vision_config": TOWER,
                "insert_layer_id": 1,
            },
            chat_template=template(image="<|image_pad|>", video="<|video_pad|>"),
            marks=(*MARKS, *PLACES),
            preprocessing={"preprocessor_config.json": {"scale_resolution": 56}},
        )
        for name in ("4.6", "4.7, untied", "4.7 of experts")
    },
)


class TestConformance(MediaConformance):
    def test_a_large_picture_is_read_in_slices(self, engine: Engine) -> None:
        prompt = engine.encode([user(image(1, height=100, width=160))])
        (placed,) = prompt.media
        assert len(placed.runs) > 3
        assert engine.tokenizer.decode(prompt.ids[: placed.start]).endswith("</image_id><image>")
