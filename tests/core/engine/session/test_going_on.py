"""A reply in several calls is one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.engine.session.agreement import assert_alike
from tests.core.engine.session.sessions import (
    ASCII,
    DRAWN,
    GREEDY,
    OPTIONS,
    PROMPT,
    alone,
    begun,
    running,
)
from tests.core.engine.session.talking import END

if TYPE_CHECKING:
    import phyla
    from phyla.testing import ScriptedEngine


@pytest.mark.parametrize("name", list(OPTIONS))
def test_two_calls_give_what_one_longer_call_gives(
    every: phyla.Engine, name: str, ahead: bool
) -> None:
    options = {**OPTIONS[name], **ASCII, "top_logprobs": 1}
    with running(every, ahead=ahead), begun(every) as session:
        first = session.generate({**options, "seed": 11, "max_tokens": 7})
        seed = 11 if ahead else None
        second = session.generate({**options, "seed": seed, "max_tokens": 7})
        third = session.generate({**options, "max_tokens": 1})
        whole = alone(every, PROMPT, {**options, "seed": 11, "max_tokens": 15})
        assert_alike([first, second, third], whole)
        assert {first.seed, second.seed, third.seed} == {11}


def test_a_drawn_seed_is_kept_until_something_is_appended(plain: phyla.Engine) -> None:
    with begun(plain) as session:
        options = {**DRAWN, "seed": None}
        first = session.generate(options)
        assert session.generate(options).seed == first.seed
        assert session.generate({**options, "temperature": 1.7}).seed == first.seed
        assert session.generate({**options, "seed": 4}).seed == 4
        assert session.generate(options).seed == 4
        session.append_tokens([1])
        assert session.generate(options).seed != 4


def test_stop_texts_are_found_across_the_border(plain: phyla.Engine, ahead: bool) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 24, "logprobs": True}
    text = alone(plain, PROMPT, options).text
    stop = text[10:14]
    place = text.index(stop)
    options = {**options, "stop": [stop, "never said"]}
    whole = alone(plain, PROMPT, options)
    assert (whole.text, whole.finish_reason) == (text[:place], "stop")
    with running(plain, ahead=ahead):
        for border in range(max(1, place - 1), place + 4):
            with begun(plain) as session:
                first = session.generate({**options, "max_tokens": border})
                second = session.generate(options)
                assert first.finish_reason == "length"
                assert first.text == text[: min(border, place)]  # the rest may still be a stop
                assert_alike([first, second], whole)


def test_what_is_withheld_at_a_border_comes_when_it_is_no_stop_text(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 12}
    whole = alone(plain, PROMPT, options)
    options["stop"] = whole.text[5:7] + "\n"  # newlines are suppressed
    with begun(plain) as session:
        first = session.generate({**options, "max_tokens": 7})
        second = session.generate({**options, "max_tokens": 5})
    assert first.text == whole.text[:5]
    assert_alike([first, second], whole)


def test_characters_are_joined_across_the_border(plain: phyla.Engine) -> None:
    said = "ä€😀".encode()
    with begun(plain) as session:
        texts = []
        for byte in said:
            options = {**GREEDY, "max_tokens": 1, "logit_bias": {byte: 1e4}}
            texts.append(session.generate(options).text)
        # Other options begin the reading anew, and nothing is said twice.
        assert "".join(texts) == said.decode()


@pytest.mark.parametrize("border", range(1, 8))
def test_a_change_of_options_tells_nothing_twice(plain: phyla.Engine, border: int) -> None:
    options = {**DRAWN, **ASCII}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        first = session.generate({**options, "max_tokens": border})
        second = session.generate({**options, "max_tokens": 8 - border, "logprobs": True})
        assert_alike([first, second], whole)
        assert second.logprobs is not None
        assert len(second.logprobs) == 8 - border


def test_after_the_end_of_a_turn_the_model_can_be_made_to_go_on(
    plain: phyla.Engine, ahead: bool
) -> None:
    eos = min(plain.eos)
    ends = {**GREEDY, "ignore_eos": False, "logit_bias": {eos: 1e4}}
    goes_on = {**GREEDY, **ASCII, "max_tokens": 5}
    with running(plain, ahead=ahead), begun(plain) as session:
        first = session.generate(ends)
        assert (first.tokens, first.finish_reason, first.text) == ((eos,), "stop", "")
        for _ in range(2):
            again = session.generate(ends)
            assert (again.tokens, again.finish_reason, again.text) == ((eos,), "stop", "")
        second = session.generate(goes_on)
        expected = alone(plain, [*PROMPT, eos, eos, eos], goes_on)
        assert second.tokens == expected.tokens
        assert second.text == expected.text


def test_after_a_stop_text_the_model_can_be_made_to_go_on(plain: phyla.Engine) -> None:
    options = {**DRAWN, **ASCII, "max_tokens": 16}
    whole = alone(plain, PROMPT, options)
    with begun(plain) as session:
        first = session.generate({**options, "stop": whole.text[4:6]})
        assert first.finish_reason == "stop"
        count = len(first.tokens)
        second = session.generate({**options, "max_tokens": 16 - count})
        assert (*first.tokens, *second.tokens) == whole.tokens
        assert second.finish_reason == "length"
        assert whole.text.endswith(second.text)
        assert second.text


def test_the_penalties_look_at_the_whole_reply_and_its_prompt(plain: phyla.Engine) -> None:
    options = {**GREEDY, **ASCII, "repetition_penalty": 1e6}
    with begun(plain) as session:
        tokens = [*session.generate({**options, "max_tokens": 20}).tokens]
        tokens += session.generate({**options, "max_tokens": 20}).tokens
    assert len({*tokens, *PROMPT}) == 40 + len({*PROMPT})


def test_a_session_goes_on_after_a_stop_text(scripted: ScriptedEngine) -> None:
    said = scripted.ids("One. Two. Three." + END)
    with scripted.engine.session() as session:
        session.append_text("Count")
        scripted._script.write(session.position, said)
        options = {"stop": ". ", "temperature": 0, "max_tokens": 40}
        texts = [session.generate(options).text for _ in range(3)]
    assert texts == ["One", "Two", "Three."]


def test_what_an_old_stop_text_withheld_is_told_and_a_new_one_looks_at_new_text_only(
    scripted: ScriptedEngine,
) -> None:
    said = scripted.ids("ab{tcdab!" + END)
    with scripted.engine.session() as session:
        session.append_text("Go")
        scripted._script.write(session.position, said)
        first = session.generate({"stop": "{tx", "temperature": 0, "max_tokens": 4})
        assert first.text == "ab"
        second = session.generate({"stop": "ab", "temperature": 0, "max_tokens": 20})
        assert second.text == "{tcd"
