"""What every family that reads media must hold to: pictures change replies, memory does not.

A family's test module has a fixture `seeing` that gives an engine, from `sights` say, and a class
that derives from `MediaConformance`. Pictures are made here; no decoder library is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from phyla.engine.engine import Engine, load
from phyla.errors import MediaError
from phyla.testing.agreement import assert_differ, assert_same_tokens
from phyla.testing.files import CHATML
from phyla.testing.forward import assert_close
from phyla.testing.thorough import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from phyla.prompt import Prompt
    from phyla.registry import Registry
    from phyla.testing.tiny import Tiny

GREEDY: Mapping[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


def template(
    *, image: str | None = None, audio: str | None = None, video: str | None = None
) -> str:
    """The usual chat template, with what it writes for each modality; None shows nothing of it."""
    shown = {"image": image, "audio": audio, "video": video}
    cases = "".join(
        f"{{% elif part.type == '{modality}' %}}{written}"
        for modality, written in shown.items()
        if written is not None
    )
    return CHATML.replace(
        "{{ message.content }}",
        "{% if message.content is string %}{{ message.content }}{% else %}"
        "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}"
        f"{cases}{{% endif %}}{{% endfor %}}{{% endif %}}",
    )


def picture(seed: int, *, height: int = 40, width: int = 56) -> NDArray[np.uint8]:
    """A picture `[H, W, 3]` with as much in it as fits, always the same for one seed."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (-(-height // 4), -(-width // 4), 3), dtype=np.uint8)
    return np.repeat(np.repeat(coarse, 4, axis=0), 4, axis=1)[:height, :width]


def tone(hertz: float, *, seconds: float = 0.9, rate: int = 16000) -> NDArray[np.float32]:
    """A sine wave `[N]`."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(
        np.float32
    )


def image(seed: int, *, height: int = 40, width: int = 56) -> dict[str, Any]:
    """A content part."""
    return {"type": "image", "source": picture(seed, height=height, width=width)}


def text(said: str) -> dict[str, Any]:
    """A content part."""
    return {"type": "text", "text": said}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    """A message."""
    return {"role": "user", "content": list(parts)}


def sights(
    table: Mapping[str, Tiny], *, registry: Registry | None = None, most: int = 1
) -> Callable[..., Iterator[Engine]]:
    """A module-scoped fixture that runs through tiny checkpoints with towers; call it `seeing`.

    An ordinary run takes about `most` of them, see `phyla.testing.thorough`.
    """

    @pytest.fixture(scope="module", params=some(sorted(table), count=len(table), most=most))
    def seeing(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Engine]:
        tiny = table[request.param]
        folder = tiny.write(tmp_path_factory.mktemp("sight") / tiny.name, registry=registry)
        with load(folder, dtype="float32", registry=registry) as engine:
            yield engine

    return seeing


class MediaConformance:
    """Derive from it in a module with a fixture `seeing`."""

    @pytest.fixture
    def engine(self, seeing: Engine) -> Iterator[Engine]:
        """The engine with nothing remembered."""
        seeing.cache.clear()
        yield seeing
        seeing.cache.clear()

    @pytest.fixture
    def parts(self, engine: Engine) -> Sequence[dict[str, Any]]:
        """One part of each modality that the engine reads."""
        able = engine.capabilities
        parts = [image(1)] if able.image else []
        if able.audio:
            parts.append({"type": "audio", "source": tone(440), "rate": 16000})
        if able.video:
            frames = np.stack([picture(seed) for seed in range(4)])
            parts.append({"type": "video", "source": frames, "source_fps": 2.0})
        return parts

    def test_a_picture_is_seen(self, engine: Engine) -> None:
        def logits(seed: int) -> NDArray[np.float32]:
            return engine.trace(engine.encode(_asked(image(seed)))).logits[-1]

        assert_close(logits(1), logits(1), what=f"{engine.name}: a picture seen twice")
        assert_differ(logits(1), logits(2), what=f"{engine.name}: another picture")

    def test_pixels_are_what_counts_wherever_they_come_from(self, engine: Engine) -> None:
        pixels = picture(1)
        first = engine.chat(_asked({"type": "image", "source": pixels}), options=GREEDY)
        looked = engine.cache.stats().media_misses
        again = engine.chat(_asked({"type": "image", "source": pixels / 255.0}), options=GREEDY)
        what = f"{engine.name}: a picture as bytes, and as floats"
        assert_same_tokens(again.tokens, first.tokens, what=what)
        assert again.usage.cached_tokens > engine.encode(_asked(image(1))).media[0].stop - 2
        assert engine.cache.stats().media_misses == looked

    def test_another_picture_of_one_size_shares_nothing_from_its_place_on(
        self, engine: Engine
    ) -> None:
        one, two = engine.encode(_asked(image(1))), engine.encode(_asked(image(2)))
        assert one.ids == two.ids
        engine.generate(one, options=GREEDY)
        assert engine.cache.explain(two).cached_tokens <= one.media[0].start
        expected = engine.generate(two, options=GREEDY, prompt_cache=False)
        found = engine.generate(two, options=GREEDY)
        what = f"{engine.name}: a picture, after another of its size"
        assert_same_tokens(found.tokens, expected.tokens, what=what)

    def test_replies_with_media_are_the_same_whatever_is_remembered(
        self, engine: Engine, parts: Sequence[dict[str, Any]]
    ) -> None:
        long = text("and then there was a long silence. " * 4)
        conversations = [
            _asked(*parts),
            _asked(*parts),
            _asked(long, *parts, text("why?")),
            _asked(*parts, long),
            _asked(*reversed(parts)),
        ]
        for number, messages in enumerate(conversations):
            cold = engine.chat(messages, options=GREEDY, prompt_cache=False)
            warm = engine.chat(messages, options=GREEDY)
            cached = warm.usage.cached_tokens
            what = f"{engine.name}: conversation {number}, {cached} tokens remembered"
            assert_same_tokens(warm.tokens, cold.tokens, what=what)

    def test_a_prompt_with_media_may_be_read_in_chunks_of_any_size(
        self,
        engine: Engine,
        parts: Sequence[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        prompt = engine.encode(_asked(text("look: "), *parts, text("well?")))
        known = engine.tokenizer.vocab_size  # the head may have more rows, which are never chosen
        whole = engine.trace(prompt).logits[-1, :known].argmax()
        expected = engine.generate(prompt, options=GREEDY, prompt_cache=False)
        assert expected.tokens[0] == whole
        scheduler = engine.machine.loaded.scheduler
        for chunk in (1, 5, 17):
            monkeypatch.setattr(scheduler, "chunk", chunk)
            found = engine.generate(prompt, options=GREEDY, prompt_cache=False)
            what = f"{engine.name}: a prompt with media in chunks of {chunk}"
            assert_same_tokens(found.tokens, expected.tokens, what=what)

    def test_a_conversation_with_pictures_is_read_from_where_it_went_on(
        self, engine: Engine
    ) -> None:
        messages: list[Any] = []
        before: Prompt | None = None
        for turn in range(3):
            messages.append(user(image(turn), text(f"Question {turn}: " + "what? " * 5)))
            prompt = engine.encode(messages)
            reply = engine.chat(messages, options=GREEDY)
            cold = engine.chat(messages, options=GREEDY, prompt_cache=False)
            what = f"{engine.name}: turn {turn}, {reply.usage.cached_tokens} tokens remembered"
            assert_same_tokens(reply.tokens, cold.tokens, what=what)
            if before is not None:
                assert reply.usage.cached_tokens >= 0.95 * before.boundaries[-1]
            before = prompt
            messages.append({"role": "assistant", "content": f"Answer {turn}."})

    def test_requests_with_and_without_media_do_not_touch_one_another(
        self, engine: Engine, parts: Sequence[dict[str, Any]]
    ) -> None:
        requests: list[Any] = []
        for place in range(4):
            said = text("so " * (3 * place + 1))
            requests += [_asked(said, parts[place % len(parts)]), _asked(said)]
        alone = [engine.chat(each, options=GREEDY, prompt_cache=False) for each in requests]
        streams = [engine.stream(each, options=GREEDY) for each in requests]
        together = [stream.result() for stream in streams]
        for number, (found, expected) in enumerate(zip(together, alone, strict=True)):
            what = f"{engine.name}: request {number} of {len(requests)} at once"
            assert_same_tokens(found.tokens, expected.tokens, what=what)

    def test_a_session_sees_what_the_engine_sees(
        self, engine: Engine, parts: Sequence[dict[str, Any]]
    ) -> None:
        messages: list[Any] = _asked(*parts)
        cold = engine.chat(messages, options=GREEDY, prompt_cache=False)
        with engine.session() as session:
            session.append_chat(messages)
            assert session.position == cold.usage.prompt_tokens
            fork = session.fork()
            for who, each in (("a session", session), ("its fork", fork)):
                found = each.generate(GREEDY).tokens
                assert_same_tokens(found, cold.tokens, what=f"{engine.name}: {who}")
            fork.close()

    def test_a_session_takes_a_picture_alone(self, engine: Engine) -> None:
        with engine.session() as session:
            session.append_text("Before it. ")
            start = session.position
            session.append_image(picture(1))
            assert session.position > start + 1
            first = session.generate(GREEDY).tokens
            session.reset()
            session.append_text("Before it. ")
            session.append_image(picture(2))
            assert len(session.generate(GREEDY).tokens) == len(first)

    def test_what_stands_for_a_picture_may_be_spoken_of(self, engine: Engine) -> None:
        alone = engine.encode(_asked(image(1)))
        token = next(t for t in ("<image>", "<|image|>", "<|image_pad|>") if t in alone.text)
        said = engine.encode(_asked(text(f"Is {token} a tag?"), image(1)))
        assert f"Is {token} a tag?" in said.text
        assert f"Is {token} a tag?" in engine.tokenizer.decode(said.ids, keep_special=True)
        (one,), (other,) = alone.media, said.media
        assert said.ids[other.start : other.stop] == alone.ids[one.start : one.stop]
        soft = alone.ids[one.start]
        assert said.ids.count(soft) == alone.ids.count(soft)

    def test_no_item_takes_more_tokens_than_it_may(
        self, engine: Engine, parts: Sequence[dict[str, Any]]
    ) -> None:
        for part in parts:
            whole = engine.encode(_asked(part)).media[0].item.plan.count
            for most in (1, whole // 2, whole):
                try:
                    prompt = engine.encode(_asked({**part, "max_tokens": max(1, most)}))
                except MediaError:
                    assert most < whole
                else:
                    assert prompt.media[0].item.plan.count <= max(1, most)

    def test_a_broken_picture_is_refused_and_nothing_is_changed(self, engine: Engine) -> None:
        with pytest.raises(MediaError) as failure:
            engine.chat(_asked(image(1), {"type": "image", "source": b"nonsense"}))
        assert failure.value.index == 1
        assert engine.cache.stats().entries == 0


def _asked(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [user(*parts, text("What is it?"))]
