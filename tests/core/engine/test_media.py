"""Media through the engine, on a toy family that reads all of them."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

import phyla
from phyla.errors import MediaError, PluginError, TemplateError, UnsupportedModalityError
from phyla.family import Features
from phyla.prompt import Prompt
from phyla.testing import MARKS, Tiny
from phyla.testing.mixed import mixed, mixed_registry
from phyla.testing.sight import (
    MediaConformance,
    image,
    picture,
    sights,
    template,
    text,
    tone,
    user,
)
from phyla.testing.sighted import SightedModel, _Images, sighted, sighted_registry

seeing = sights(
    {
        "attention": sighted("fmfm"),
        "a window that opens for pictures": sighted("wmfm", bidirectional=True),
        "everything": sighted("rwfsm", bidirectional=True),
        "recurrences": sighted("rmrf"),
    },
    registry=sighted_registry(),
    most=2,
)


class TestConformance(MediaConformance):
    pass


GREEDY = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sighted("rwfm", bidirectional=True).write(
        tmp_path_factory.mktemp("sighted"), registry=sighted_registry()
    )


@pytest.fixture(scope="module")
def shared(folder):
    with phyla.load(folder, dtype="float32", registry=sighted_registry()) as engine:
        yield engine


@pytest.fixture
def engine(shared):
    shared.cache.clear()
    return shared


def png(seed: int, **size: int) -> bytes:
    image_module = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image_module.fromarray(picture(seed, **size)).save(buffer, format="PNG")
    return buffer.getvalue()


# What a checkpoint can read.


def test_capabilities_are_those_of_the_checkpoint(tmp_path, engine):
    assert engine.capabilities == phyla.Capabilities(image=True, audio=True, video=True)
    tiny = sighted("fm", senses=("audio",))
    folder = tiny.write(tmp_path / "deaf", registry=sighted_registry())
    with phyla.load(folder, registry=sighted_registry()) as blind:
        assert blind.capabilities == phyla.Capabilities(audio=True)
        with pytest.raises(UnsupportedModalityError) as failure:
            blind.chat([user({"type": "audio", "source": b"not opened"}, image(1))])
        assert (failure.value.modality, failure.value.index) == ("image", 1)
        with blind.session() as session:
            with pytest.raises(UnsupportedModalityError):
                session.append_image(picture(1))
            assert session.position == 0


def test_a_vocabulary_without_a_soft_token_is_missed_when_it_is_needed(tmp_path):
    tiny = replace(sighted("fm"), marks=(*MARKS, "<image>", "<img>", "</img>"))
    folder = tiny.write(tmp_path / "some", registry=sighted_registry())
    with phyla.load(folder, registry=sighted_registry()) as engine:
        assert engine.chat([user(image(1))], options=GREEDY).tokens
        with pytest.raises(phyla.CheckpointError, match="<audio>"):
            engine.chat([user({"type": "audio", "source": tone(440), "rate": 16000})])
        assert engine.chat("<audio>", options=GREEDY).tokens


def test_a_text_model_refuses_media_and_names_them(tmp_path):
    folder = Tiny("text", mixed("fm")).write(tmp_path / "text", registry=mixed_registry())
    with phyla.load(folder, registry=mixed_registry()) as engine:
        assert engine.capabilities == phyla.Capabilities()
        with pytest.raises(UnsupportedModalityError, match="reads text only"):
            engine.chat([user(image(1))])


# From a message to soft tokens.


def test_soft_tokens_are_known_before_anything_is_decoded(engine):
    data = png(1, height=40, width=56)
    broken = data[: len(data) // 2]  # The header is whole.
    prompt = engine.encode([user({"type": "image", "source": broken})])
    assert [placed.stop - placed.start for placed in prompt.media] == [10 * 14]
    with pytest.raises(MediaError) as failure:
        engine.chat(prompt)
    assert failure.value.index == 0
    assert engine.cache.stats().entries == 0


def test_each_item_stands_where_the_message_has_it(engine):
    prompt = engine.encode([user(text("a"), image(1), text("b"), image(2, height=8, width=8))])
    soft = engine.tokenizer.token_id("<image>")
    first, second = prompt.media
    assert set(prompt.ids[first.start : first.stop]) == {soft}
    assert prompt.ids.count(soft) == 140 + 4
    assert engine.tokenizer.decode(prompt.ids[first.stop : second.start]) == "</img>b<img>"
    assert [(run.grid, run.item) for placed in prompt.media for run in placed.runs] == [
        ((10, 14), 0),
        ((2, 2), 1),
    ]


def test_a_video_is_a_run_for_each_frame(engine):
    frames = np.stack([picture(seed, height=8, width=8) for seed in range(3)])
    part = {"type": "video", "source": frames, "source_fps": 2.0, "max_frames": 2}
    prompt = engine.encode([user(part)])
    (placed,) = prompt.media
    assert [run.stop - run.start for run in placed.runs] == [4, 4]
    assert engine.tokenizer.decode(prompt.ids[placed.start + 4 : placed.stop - 4]) == "0.5"


def test_pictures_of_a_tools_answer_are_shown_with_it(engine):
    messages = [
        {"role": "user", "content": "look"},
        {"role": "tool", "tool_call_id": "1", "content": [text("here: "), image(1)]},
    ]
    prompt = engine.encode(messages)
    assert "here: <image>" in prompt.text
    assert len(prompt.media) == 1


def test_words_that_look_like_places_are_words(engine):
    typed = "<image> and <video>"
    soft = engine.tokenizer.token_id("<image>")
    for messages, count in (([user(text(typed), image(1), text(typed))], 140), (typed, 0)):
        prompt = engine.encode(messages)
        assert prompt.ids.count(soft) == count
        assert engine.tokenizer.decode(prompt.ids).count(typed) == prompt.text.count(typed) > 0
    call = {"name": "f", "arguments": {"tag": "<image>"}}
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
    assert engine.encode([*history, user(image(1))]).ids.count(soft) == 140
    with engine.session() as session:
        session.append_chat([user(text(typed), image(1))])
        session.generate(GREEDY)
        session.append_chat([user(text(typed), image(2))])
        assert len(session._strand.media) == 2


def test_a_template_that_drops_a_picture_is_refused(tmp_path):
    tiny = replace(sighted("fm"), chat_template=template(audio="<audio>"))
    folder = tiny.write(tmp_path / "blind", registry=sighted_registry())
    engine = phyla.load(folder, registry=sighted_registry())
    with engine, pytest.raises(TemplateError, match="1 image, and the text has places for no"):
        engine.encode([user(image(1), text("<image>"))])


def test_pictures_belong_to_the_answer_before_them(engine):
    answers = [
        phyla.ToolResult(text="A"),
        phyla.Image(source=picture(1)),
        phyla.ToolResult(text="B"),
    ]
    prompt = engine.encode([user(text("?")), phyla.Message(role="tool", content=answers)])
    assert "A<image><|im_end|>" in prompt.text
    assert "B<|im_end|>" in prompt.text


def test_a_prompt_whose_media_do_not_stand_where_it_says_is_refused(tmp_path, engine):
    prompt = engine.encode([user(text("ab"), image(1))])
    (placed,) = prompt.media
    for wrong in (
        replace(prompt, ids=prompt.ids[1:]),
        replace(prompt, ids=prompt.ids[: placed.stop - 1]),
        replace(prompt, media=(placed, placed)),
    ):
        with pytest.raises(phyla.RequestError, match="media"):
            engine.generate(wrong)
        with pytest.raises(phyla.RequestError, match="media"):
            engine.trace(wrong)
    folder = sighted("fm").write(tmp_path / "other", registry=sighted_registry())
    other = phyla.load(folder, registry=sighted_registry())
    with other, pytest.raises(phyla.RequestError, match="media"):
        other.generate(prompt)


def test_nothing_is_decoded_for_a_request_that_is_refused(folder, monkeypatch):
    def decode(self, item, plan):
        raise AssertionError("nothing is to be decoded")

    off = phyla.CacheLimits(entries=0)
    with phyla.load(folder, cache=off, memory_limit=50_000, registry=sighted_registry()) as engine:
        monkeypatch.setattr(_Images, "prepare", decode)
        with pytest.raises(phyla.MemoryLimitError):
            engine.chat([user(*[image(1)] * 3)])
        with pytest.raises(phyla.RequestError, match="off"):
            engine.cache.pin("a", [user(image(1))], ttl=60)


def test_decoded_content_is_given_back_when_it_was_looked_at(engine):
    prompt = engine.encode([user(image(1))])
    engine.generate(prompt, options=GREEDY)
    item = prompt.media[0].item
    assert item._prepared is None
    assert set(item.arrays) == {"patches"}  # and is there again for whoever asks


def test_plain_text_may_hold_media(engine):
    media = [phyla.Image(source=picture(1)), phyla.Audio(source=tone(440), rate=16000)]
    prompt = engine.encode_text("A <image> and <audio>.", media=media)
    assert [placed.stop - placed.start for placed in prompt.media] == [140, 9]
    with pytest.raises(TemplateError):
        engine.encode_text("A <image>.", media=media)
    assert engine.generate(prompt, options=GREEDY).usage.prompt_tokens == len(prompt.ids)


def test_what_the_family_cannot_read_is_said_in_its_words(engine):
    with pytest.raises(MediaError, match="less than 4 pixels"):
        engine.encode([user(image(1, height=2, width=40))])
    with pytest.raises(MediaError, match="takes 140 tokens"):
        engine.encode([user({**image(1), "max_tokens": 100})])
    with pytest.raises(MediaError, match="takes 9 tokens"):
        engine.encode(
            [user({"type": "audio", "source": tone(440), "rate": 16000, "max_tokens": 8})]
        )


def test_addresses_are_fetched_only_where_that_is_allowed(engine):
    with pytest.raises(MediaError, match="http"):
        engine.encode([user({"type": "image", "source": "http://example.org/cat.png"})])


def test_a_prompt_with_too_many_soft_tokens_overflows_without_being_decoded(engine):
    data = png(1, height=300, width=300)
    broken = {"type": "image", "source": data[: len(data) // 2]}
    with pytest.raises(phyla.ContextOverflowError):
        engine.chat([user(*[broken] * 2)])


def test_a_reply_holds_no_soft_tokens(engine):
    soft = [engine.tokenizer.token_id(token) for token in ("<image>", "<video>", "<img>")]
    options = {**GREEDY, "logit_bias": dict.fromkeys(soft, 100.0)}
    assert set(soft).isdisjoint(engine.chat([user(image(1))], options=options).tokens)
    with engine.session() as session:
        session.append_image(picture(1))
        assert set(soft).isdisjoint(session.generate(options).tokens)


# What is remembered.


def test_the_same_pixels_in_another_file_are_looked_at_once(engine):
    first = engine.chat([user(image(1), text("what?"))], options=GREEDY)
    again = [user({"type": "image", "source": png(1)}, text("what?"))]
    assert engine.cache.explain(again).cached_tokens > 140
    before = engine.cache.stats()
    assert engine.chat(again, options=GREEDY).tokens == first.tokens
    other = [user(text("so "), image(1))]
    engine.chat(other, options=GREEDY)
    after = engine.cache.stats()
    assert (after.media, after.media_misses) == (1, before.media_misses)
    assert after.media_hits == before.media_hits + 1  # The first came from the prompt cache.
    assert after.media_bytes == 2 * 140 * 32 * 4


def test_features_have_a_limit_of_their_own(folder):
    limits = phyla.CacheLimits(media_bytes=2 * 140 * 32 * 4)
    with phyla.load(folder, dtype="float32", cache=limits, registry=sighted_registry()) as engine:
        for place, seed in enumerate((1, 2, 1)):
            engine.chat([user(text(f"{place}"), image(seed))], options=GREEDY)
        stats = engine.cache.stats()
        assert (stats.media, stats.media_misses) == (1, 3)
    none = phyla.CacheLimits(media_bytes=0)
    with phyla.load(folder, dtype="float32", cache=none, registry=sighted_registry()) as engine:
        reply = engine.chat([user(image(1))], options=GREEDY)
        assert engine.cache.stats().media == 0
        assert engine.chat([user(image(1))], options=GREEDY).tokens == reply.tokens


def test_no_namespace_learns_what_another_has_looked_at(engine):
    before = engine.cache.stats()
    for number, namespace in enumerate(("a", "b", "a")):
        engine.chat([user(text(f"{number}"), image(1))], options=GREEDY, namespace=namespace)
    after = engine.cache.stats()
    assert after.media == 2
    assert after.media_misses - before.media_misses == 2
    assert after.media_hits - before.media_hits == 1


def test_a_hit_never_ends_inside_a_picture(engine):
    prompt = engine.encode([user(text("well, " * 5), image(1), text("what?"))])
    engine.generate(prompt, options=GREEDY)
    (placed,) = prompt.media
    other = engine.encode([user(text("well, " * 5), image(2), text("what?"))])
    told = engine.cache.explain(other)
    assert told.matched_tokens == placed.start
    assert told.cached_tokens <= placed.start


def test_a_beginning_with_a_picture_can_be_pinned(engine):
    beginning = [user(image(1), text("Look at it."))]
    count = engine.cache.pin("cat", beginning, ttl=60)
    reply = engine.chat([*beginning, {"role": "user", "content": "Now?"}], options=GREEDY)
    assert reply.usage.cached_tokens >= count > 140
    assert engine.cache.stats().media == 1
    engine.cache.unpin("cat")


def test_a_tower_that_makes_too_few_features_is_the_families_fault(folder, monkeypatch):
    def few(self, modality, arrays):
        return Features(mx.zeros((1, 32)))

    with phyla.load(folder, dtype="float32", registry=sighted_registry()) as engine:
        monkeypatch.setattr(SightedModel, "media_features", few)
        with pytest.raises(PluginError, match="1 features of media"):
            engine.chat([user(image(1))])
        assert engine.chat("still here", options=GREEDY).tokens


# Sessions.


def test_pictures_may_be_appended_among_other_things(engine):
    with engine.session() as session:
        session.append_text("a")
        session.append_image(picture(1))
        session.append_audio(tone(300), rate=16000)
        session.append_tokens([65, 66])
        frames = np.stack([picture(seed) for seed in range(2)])
        end = session.append_video(frames, source_fps=1.0)
        found = session.generate(GREEDY)
        tokens = session.tokens
    media = [
        phyla.Image(source=picture(1)),
        phyla.Audio(source=tone(300), rate=16000),
        phyla.Video(source=frames, source_fps=1.0),
    ]
    whole = engine.encode_text("a<image>(<audio>)AB<video>", media=media)
    assert whole.ids == tokens[:end]
    assert engine.generate(whole, options=GREEDY, prompt_cache=False).tokens == found.tokens


def test_a_conversation_in_a_session_may_show_more_pictures(engine):
    with engine.session() as session:
        session.append_chat([user(image(1), text("one"))])
        session.generate(GREEDY)
        session.append_chat([user(text("two"), image(2))])
        # The reply's tokens, which its text need not lead back to.
        prompt = Prompt(ids=session.tokens, media=session._strand.media)
        found = session.generate(GREEDY)
    assert len(prompt.media) == 2
    assert engine.generate(prompt, options=GREEDY, prompt_cache=False).tokens == found.tokens


def test_a_film_whose_reading_was_cancelled_is_read_when_it_is_appended_again(engine, monkeypatch):
    frames = np.stack([picture(seed) for seed in range(3)])
    feed = SightedModel.media_features

    def look(model, modality, arrays):
        session.cancel()
        return feed(model, modality, arrays)

    with engine.session() as session, engine.session() as other:
        session.append_text("a" * 30)
        with monkeypatch.context() as patch:
            patch.setattr(engine.machine.loaded.scheduler, "chunk", 150)
            patch.setattr(SightedModel, "media_features", look)
            with pytest.raises(phyla.CancelledError):
                session.append_video(frames, source_fps=1.0)
        assert len(session.unread) > 140
        session.clear_cancel()
        with pytest.raises(phyla.RequestError):
            session.generate(GREEDY)
        session.append_tokens(session.unread)
        other.append_text("a" * 30)
        other.append_video(frames, source_fps=1.0)
        assert session.tokens == other.tokens
        assert session.generate(GREEDY).tokens == other.generate(GREEDY).tokens


def test_what_a_cancel_left_may_come_with_more(engine, monkeypatch):
    feed = SightedModel.media_features

    def look(model, modality, arrays):
        session.cancel()
        return feed(model, modality, arrays)

    with engine.session() as session, engine.session() as other:
        session.append_text("a")
        with monkeypatch.context() as patch:
            patch.setattr(SightedModel, "media_features", look)
            with pytest.raises(phyla.CancelledError):
                session.append_image(picture(1))
        session.clear_cancel()
        more = engine.encode_text("b<image>", media=[phyla.Image(source=picture(2))])
        count = len(session.unread)
        both = Prompt(
            ids=(*session.unread, *more.ids),
            media=tuple(placed.moved(count) for placed in more.media),
        )
        with session._work():
            session._append(both)
        other.append_text("a")
        other.append_image(picture(1))
        other.append_tokens(more.ids[:1])
        other.append_image(picture(2))
        assert session.tokens == other.tokens
        assert len(session._strand.media) == 2
        assert session.generate(GREEDY).tokens == other.generate(GREEDY).tokens


def test_another_picture_is_not_what_a_cancel_left(engine, monkeypatch):
    feed = SightedModel.media_features

    def look(model, modality, arrays):
        session.cancel()
        return feed(model, modality, arrays)

    with engine.session() as session:
        with monkeypatch.context() as patch:
            patch.setattr(SightedModel, "media_features", look)
            with pytest.raises(phyla.CancelledError):
                session.append_image(picture(1))
        session.clear_cancel()
        with pytest.raises(phyla.RequestError, match="unread"):
            session.append_image(picture(2))
        session.append_image(picture(1))
        assert session.generate(GREEDY).tokens


@pytest.mark.parametrize("layers", ["fmfm", "wmfm", "rmrf"])
def test_a_failure_in_the_middle_of_anything_costs_no_session(layers, tmp_path, monkeypatch):
    folder = sighted(layers, bidirectional=True).write(
        tmp_path / "again", registry=sighted_registry()
    )
    frames = np.stack([picture(seed) for seed in range(2)])

    def fail(*args):
        raise RuntimeError("no")

    engine = phyla.load(folder, dtype="float32", registry=sighted_registry())
    with engine, engine.session() as session, engine.session() as other:
        for each in (session, other):
            each.append_text("a")
            each.append_video(frames, source_fps=1.0)  # ends in soft tokens
        with monkeypatch.context() as patch:
            patch.setattr(SightedModel, "logits", fail)
            with pytest.raises(RuntimeError):
                session.generate(GREEDY)
        assert session.generate(GREEDY).tokens == other.generate(GREEDY).tokens
        # Cancelled in a picture, then broken in it.
        feed = SightedModel.media_features
        monkeypatch.setattr(engine.machine.loaded.scheduler, "chunk", 30)

        def look(model, modality, arrays):
            session.cancel()
            return feed(model, modality, arrays)

        with monkeypatch.context() as patch:
            patch.setattr(SightedModel, "media_features", look)
            with pytest.raises(phyla.CancelledError):
                session.append_image(picture(5))
        session.clear_cancel()
        engine.cache.clear()
        with monkeypatch.context() as patch:
            patch.setattr(SightedModel, "media_features", fail)
            with pytest.raises(RuntimeError):
                session.append_tokens(session.unread)
        session.append_tokens(session.unread)
        other.append_image(picture(5))
        assert session.tokens == other.tokens
        assert session.generate(GREEDY).tokens == other.generate(GREEDY).tokens


def test_a_session_opens_each_picture_once(engine, tmp_path):
    path = tmp_path / "cat.png"
    path.write_bytes(png(1))
    with engine.session() as session:
        session.append_chat([user({"type": "image", "source": str(path)}, text("one"))])
        session.generate(GREEDY)
        path.unlink()
        session.append_chat([user(image(2), text("two"))])
        assert session.generate(GREEDY).tokens


def test_a_cancel_waits_for_one_tower_at_most(engine, monkeypatch):
    looks = []
    feed = SightedModel.media_features

    def look(model, modality, arrays):
        looks.append(modality)
        stream.cancel()
        return feed(model, modality, arrays)

    monkeypatch.setattr(SightedModel, "media_features", look)
    prompt = engine.encode([user(*(image(seed) for seed in range(3)))])
    hold = threading.Event()
    blocked = engine.machine.run  # let `stream` be there before the first tower runs
    monkeypatch.setattr(engine.machine, "run", lambda task: (blocked(task), hold.set()))
    stream = engine.stream(prompt, options=GREEDY)
    assert stream.result().finish_reason == "cancelled"
    assert len(looks) <= 1


def test_an_append_that_fails_leaves_the_session_as_it_was(engine, monkeypatch):
    with engine.session() as session, engine.session() as other:
        for each in (session, other):
            each.append_text("before")
            each.append_image(picture(1))

        def fail(self, modality, arrays):
            raise RuntimeError("no")

        with monkeypatch.context() as patch:
            patch.setattr(SightedModel, "media_features", fail)
            with pytest.raises(RuntimeError):
                session.append_image(picture(2))
        assert session.tokens == other.tokens
        for each in (session, other):
            each.append_text("after")
        assert session.generate(GREEDY).tokens == other.generate(GREEDY).tokens


def test_a_session_with_pictures_does_not_shift(tmp_path):
    folder = sighted("fm").write(tmp_path / "full", registry=sighted_registry())
    engine = phyla.load(folder, registry=sighted_registry())
    with engine, engine.session(max_seq_len=200) as session:
        session.append_image(picture(1))
        reply = session.generate({**GREEDY, "max_tokens": 200})
        assert reply.finish_reason == "context_full"
