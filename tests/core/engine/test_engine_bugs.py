"""Bugs of other engines, end to end on a tiny model; the numbers are those of the project's list."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

import phyla
from phyla.events import Finished, TextDelta
from phyla.hooks import LogitsProcessor, hookimpl
from phyla.registry import Registry, make_registry
from phyla.testing import Forward, assert_close, prompt_ids, write_checkpoint, write_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from phyla.options import Options

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 272,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
MIXTURE: dict[str, Any] = {
    **CONFIG,
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "rope_theta": 10000.0,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
PROMPT = prompt_ids(20)


def published(name: str) -> str:
    """A parameter's name in files that come from the Hub."""
    return name if name.startswith("lm_head") else f"model.{name}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("bugs") / "tiny", CONFIG)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[phyla.Engine]:
    with phyla.load(folder, dtype="float32") as engine:
        yield engine


class Forced:
    """A plugin whose models say these ids, whatever they think."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids

    @hookimpl
    def phyla_logits_processors(self, request: Options) -> list[LogitsProcessor]:
        return [self.process]

    def process(self, tokens: Sequence[int], logits: mx.array) -> mx.array:
        # The next step is prepared before the last token is known to be the last.
        wanted = self.ids[min(len(tokens), len(self.ids) - 1)]
        return mx.where(mx.arange(logits.shape[0]) == wanted, 0.0, -math.inf)


def saying(ids: Sequence[int]) -> Registry:
    llama = importlib.import_module("phyla_families.llama.plugin")
    return make_registry(modules=[llama, Forced(ids)])


class TestEndOfTurn38:
    """38: a second end-of-turn id was ignored, and the model went on into another turn."""

    @pytest.mark.parametrize(
        ("place", "end"),
        [
            ("generation_config.json", 106),
            ("config.json", 256),
            ("config.json: text_config", 77),
            ("tokenizer_config.json", 263),
            ("the family", 258),
        ],
    )
    def test_an_id_ends_the_turn_wherever_it_is_listed(
        self, place: str, end: int, tmp_path: Path
    ) -> None:
        config = {**CONFIG, "text_config": {"eos_token_id": [76, 77]}}
        write_checkpoint(tmp_path, config, generation_config={"eos_token_id": [1, 106]})
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<pad>"}))
        registry = saying([*b"Hi", end, *b"there", end])
        with phyla.load(tmp_path, registry=registry) as engine:
            reply = engine.generate(PROMPT, options={"max_tokens": 8})
        assert reply.finish_reason == "stop"
        assert reply.text == "Hi"
        assert reply.tokens == (*b"Hi", end)

    def test_a_model_that_wants_the_second_id_stops_there(self, tmp_path: Path) -> None:
        write_checkpoint(tmp_path, CONFIG, generation_config={"eos_token_id": [1, 106]})
        with phyla.load(tmp_path) as engine:
            reply = engine.generate(PROMPT, options={"logit_bias": {106: 100.0}, "max_tokens": 8})
        assert (reply.tokens, reply.text, reply.finish_reason) == ((106,), "", "stop")


class TestQuantizedWeights45:
    """45: overrides of single layers were lost in renaming, and shapes did not fit."""

    @pytest.mark.parametrize("held", ["stored", "float32"])
    @pytest.mark.parametrize("prefix", ["model.", "language_model.model."])
    def test_overrides_by_the_files_names_and_by_foreign_ones_load(
        self, held: str, prefix: str, tmp_path: Path
    ) -> None:
        eight = {"group_size": 32, "bits": 8}
        quantize = {
            "group_size": 32,
            "bits": 4,
            "model.layers.0.mlp.down_proj": eight,
            "model.layers.1.self_attn.q_proj": False,
            "lm_head": {"group_size": 64, "bits": 6},
        }
        write_checkpoint(tmp_path / "packed", CONFIG, quantize=quantize, rename=published)
        same = unpacked(tmp_path / "packed", tmp_path / "plain", quantize)
        config = json.loads((tmp_path / "packed" / "config.json").read_text())
        config["quantization"] = {
            key.replace("model.", prefix, 1): value for key, value in quantize.items()
        }
        (tmp_path / "packed" / "config.json").write_text(json.dumps(config))
        found = Forward(tmp_path / "packed", dtype=held).logits(PROMPT)
        assert_close(found, Forward(same).logits(PROMPT))

    @pytest.mark.parametrize("held", ["stored", "float32"])
    def test_experts_in_mxfp4_beside_8_bit_affine_layers_load(
        self, held: str, tmp_path: Path
    ) -> None:
        fp4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
        quantize: dict[str, Any] = {"group_size": 32, "bits": 8, "mode": "affine"}
        for layer in range(2):
            for part in ("gate", "up", "down"):
                quantize[f"model.layers.{layer}.mlp.switch_mlp.{part}_proj"] = fp4
        write_checkpoint(tmp_path / "packed", MIXTURE, quantize=quantize, rename=published)
        same = unpacked(tmp_path / "packed", tmp_path / "plain", quantize)
        found = Forward(tmp_path / "packed", dtype=held).logits(PROMPT)
        assert_close(found, Forward(same).logits(PROMPT))


def unpacked(packed: Path, folder: Path, quantize: dict[str, Any]) -> Path:
    """The same model with the quantized layers written out in float32."""
    tensors = mx.load(str(packed / "model.safetensors"))
    assert isinstance(tensors, dict)
    for name in [name for name in tensors if name.endswith(".scales")]:
        path = name.removesuffix(".scales")
        scheme = {"mode": "affine", **{k: quantize[k] for k in ("group_size", "bits")}}
        scheme.update(quantize.get(path, {}))
        tensors[f"{path}.weight"] = mx.dequantize(
            tensors[f"{path}.weight"],
            tensors.pop(name),
            tensors.pop(f"{path}.biases", None),
            **scheme,
        ).astype(mx.float32)
    config = json.loads((packed / "config.json").read_text())
    del config["quantization"]
    return write_files(folder, config, tensors)


class TestThreads55:
    """55: a model loaded in one thread could not generate in another."""

    def test_a_worker_thread_generates(self, engine: phyla.Engine) -> None:
        expected = engine.generate(PROMPT, options=GREEDY).tokens
        found: list[tuple[int, ...]] = []
        thread = threading.Thread(
            target=lambda: found.append(engine.generate(PROMPT, options=GREEDY).tokens)
        )
        thread.start()
        thread.join()
        assert found == [expected]

    def test_asyncio_to_thread_generates(self, engine: phyla.Engine) -> None:
        async def twice() -> list[phyla.Reply]:
            calls = [asyncio.to_thread(engine.generate, PROMPT, options=GREEDY) for _ in range(2)]
            return await asyncio.gather(*calls)

        expected = engine.generate(PROMPT, options=GREEDY).tokens
        assert [reply.tokens for reply in asyncio.run(twice())] == [expected, expected]

    def test_an_engine_made_in_a_thread_that_is_gone_generates(self, folder: Path) -> None:
        with ThreadPoolExecutor(1) as pool:
            engine = pool.submit(phyla.load, folder).result()
        with engine:
            assert len(engine.generate(PROMPT, options=GREEDY).tokens) == 12
            assert engine.trace(PROMPT).logits.shape == (len(PROMPT), CONFIG["vocab_size"])

    def test_many_threads_get_what_each_would_get_alone(self, engine: phyla.Engine) -> None:
        requests = [{**GREEDY, "temperature": 1.0, "seed": seed} for seed in range(8)]
        alone = [engine.generate(PROMPT, options=options).tokens for options in requests]
        with ThreadPoolExecutor(8) as pool:
            together = pool.map(
                lambda options: engine.generate(PROMPT, options=options).tokens, requests
            )
            assert list(together) == alone

    def test_a_stream_is_read_in_a_task_of_its_own(self, engine: phyla.Engine) -> None:
        async def read() -> str:
            stream = engine.stream("Hello", options=GREEDY)
            return "".join([event.text async for event in stream if isinstance(event, TextDelta)])

        assert asyncio.run(read()) == engine.chat("Hello", options=GREEDY).text


class TestLogprobs57:
    """57: log probabilities were dropped, mislabelled, too few, or shifted against the text."""

    ASKED = {**GREEDY, "temperature": 0.8, "top_k": 3, "seed": 5, "top_logprobs": 5}  # noqa: RUF012

    def test_they_are_the_models_own_before_every_filter(self, engine: phyla.Engine) -> None:
        options = {**self.ASKED, "logit_bias": {65: 2.0}, "presence_penalty": 1.0}
        reply = engine.generate(PROMPT, options=options)
        logits = engine.trace([*PROMPT, *reply.tokens]).logits[len(PROMPT) - 1 : -1]
        known = logits[:, : engine.tokenizer.vocab_size].astype(np.float64)
        expected = known - np.log(np.exp(known).sum(axis=-1, keepdims=True))
        assert reply.logprobs is not None
        for row, entry in zip(expected, reply.logprobs, strict=True):
            assert entry.logprob == pytest.approx(row[entry.token], abs=1e-4)
            for token, logprob in entry.top:
                assert logprob == pytest.approx(row[token], abs=1e-4)

    def test_their_number_is_exact_and_they_are_logarithms(self, engine: phyla.Engine) -> None:
        reply = engine.generate(PROMPT, options=self.ASKED)
        assert reply.logprobs is not None
        assert [entry.token for entry in reply.logprobs] == list(reply.tokens)
        for entry in reply.logprobs:
            assert len(entry.top) == 5
            assert entry.logprob <= 0
            values = [logprob for _, logprob in entry.top]
            assert values == sorted(values, reverse=True)
            assert sum(map(math.exp, values)) <= 1 + 1e-6

    def test_they_are_absent_when_nobody_asked(self, engine: phyla.Engine) -> None:
        assert engine.generate(PROMPT, options=GREEDY).logprobs is None

    @pytest.mark.parametrize("stop", ["llo wor", "never said"])
    def test_they_stay_with_their_tokens_while_text_is_held_back(
        self, stop: str, folder: Path
    ) -> None:
        ids = [*"héllo wörld, hello world".encode(), 258]
        options = {"stop": stop, "logprobs": True, "max_tokens": 40}
        with phyla.load(folder, registry=saying(ids)) as engine:
            events = list(engine.stream("Hello", options=options))
        last = events[-1]
        assert isinstance(last, Finished)
        reply = last.reply
        assert reply.text == (
            "héllo wörld, he" if stop == "llo wor" else "héllo wörld, hello world"
        )
        assert reply.finish_reason == "stop"
        deltas = [event for event in events if isinstance(event, TextDelta)]
        assert "".join(delta.text for delta in deltas) == reply.text
        entries = tuple(entry for delta in deltas for entry in delta.logprobs)
        assert entries == reply.logprobs
        assert [entry.token for entry in entries] == list(reply.tokens)
