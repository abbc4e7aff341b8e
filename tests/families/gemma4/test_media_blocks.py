"""The tokens of one image see one another in sliding layers, within the window, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from phyla.engine.layers import Allocation
from phyla.family import Step
from phyla.testing import Forward, assert_close, prompt_ids, read_tiny, write_checkpoint
from phyla.testing.reference import write_reference_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

TABLE = read_tiny(Path(__file__).with_name("tiny.json"))
UNIFIED = TABLE["unified multimodal"].config
# As 26B and 31B, with a layer more than the encoder-free one.
TOWERED = {
    **TABLE["multimodal"].config,
    "text_config": {
        **TABLE["multimodal"].config["text_config"],
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
        "use_bidirectional_attention": "vision",
    },
}  # fmt: skip

# An image of more tokens than the window of 8, and a frame of a video.
IMAGE, FRAME = 290, 292
WORDS = prompt_ids(20)
IDS = [*WORDS[:6], 293, *[IMAGE] * 12, 294, *WORDS[6:9], 293, *[FRAME] * 5, 294, *WORDS[9:]]
BLOCKS = ((7, 19), (24, 29))


def logits(
    forward: Forward, *, blocks: Sequence[tuple[int, int]] = BLOCKS, cuts: Sequence[int] = ()
) -> NDArray[np.float32]:
    """The logits of all positions, read in pieces that end at the cuts."""
    model = forward.model
    layers = Allocation(tuple(model.cache_kinds()), mx.float32).layers()
    pieces: list[mx.array] = []
    for start, stop in zip((0, *cuts), (*cuts, len(IDS)), strict=True):
        layers.begin([(a - start, b - start) for a, b in blocks if start <= a and b <= stop])
        step = Step(
            ids=mx.array([IDS[start:stop]]),
            positions=mx.arange(start, stop, dtype=mx.int32)[None],
            extents=(len(IDS),),
        )
        pieces.append(model.logits(model(model.embed(step), step, layers.stores))[0])
    return np.array(mx.concatenate(pieces))


@pytest.fixture(scope="module", params=[TOWERED, UNIFIED], ids=["towers", "unified"])
def forward(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forward:
    return Forward(write_checkpoint(tmp_path_factory.mktemp("blocks") / "tiny", request.param))


@pytest.mark.parametrize("cuts", [(7,), (19,), (3, 21), (20, 24, 29, 31)])
def test_a_prompt_cut_between_images_gives_the_same(
    forward: Forward, cuts: tuple[int, ...]
) -> None:
    assert_close(logits(forward, cuts=cuts), logits(forward))


def test_an_image_changes_what_its_first_tokens_see(forward: Forward) -> None:
    seen, unseen = logits(forward), logits(forward, blocks=())
    assert_close(seen[:7], unseen[:7])
    for position in (7, 24):
        with pytest.raises(AssertionError):
            assert_close(seen[position], unseen[position])


def test_without_the_key_an_image_is_read_as_text(tmp_path: Path) -> None:
    config = dict(TABLE["multimodal"].config)
    forward = Forward(write_checkpoint(tmp_path / "tiny", config))
    np.testing.assert_array_equal(logits(forward), logits(forward, blocks=()))


def reference_logits(
    config: Mapping[str, Any], folder: Path, *, static: bool
) -> NDArray[np.float32]:
    """What transformers computes; with `static`, by the masks that a static cache is given."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = torch.tensor([IDS])
    types = (ids == IMAGE).int() + 2 * (ids == FRAME).int()
    given: dict[str, Any] = {"mm_token_type_ids": types}
    if static:
        given["attention_mask"] = model.create_masks_for_generate(
            config=model.config,
            inputs_embeds=torch.zeros(1, len(IDS), config["text_config"]["hidden_size"]),
            attention_mask=None,
            cache=None,
            position_ids=torch.arange(len(IDS))[None],
            mm_token_type_ids=types,
        )
    with torch.no_grad():
        return model(ids, **given).logits[0].numpy()


@pytest.mark.parity
@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize(
    ("config", "static"),
    [(TOWERED, False), (TOWERED, True), (UNIFIED, True)],
    ids=["towers", "towers, static cache", "unified, static cache"],
)
def test_logits_around_images_equal_the_references(
    config: dict[str, Any], static: bool, tmp_path: Path
) -> None:
    folder = write_reference_checkpoint(tmp_path, config)
    assert_close(logits(Forward(folder)), reference_logits(config, folder, static=static))


@pytest.mark.parity
@pytest.mark.usefixtures("one_torch_thread")
def test_transformers_opens_the_full_layers_of_the_unified_model_without_a_static_cache(
    tmp_path: Path,
) -> None:
    # Its two ways differ for one checkpoint; see phyla_families.gemma4.config.BLOCKS_IN.
    folder = write_reference_checkpoint(tmp_path, UNIFIED)
    dynamic = reference_logits(UNIFIED, folder, static=False)
    with pytest.raises(AssertionError):
        assert_close(logits(Forward(folder)), dynamic)
