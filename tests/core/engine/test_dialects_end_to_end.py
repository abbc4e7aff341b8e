"""Every dialect, driven through `engine.stream` by a model that says what it is told to say.

The models are small Llamas with random weights; only their dialect and their vocabulary change.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from phyla.events import (
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from phyla.messages import Tool
from phyla.testing import ScriptedEngine
from phyla.testing.thorough import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from phyla.engine.stream import Stream
    from phyla.events import Reply
    from phyla.family import Dialect

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 272,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (Tool(name="w", parameters=SCHEMA), Tool(name="pwd"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A dialect, and how its model says things.

    Attributes:
        family: the folder that its `dialect` is in.
        hint: what it looks for in a template.
        tokens: marks that are tokens of the vocabulary.
        call: a call of `w` with a city.
        end: the token that ends a turn.
        open: what a prompt writes to open reasoning; empty where the model does not reason.
        close: what the model writes to close it.
        opener: a marker that opens a call, to be typed as prose.
        broken: what should be a call and is none.
        bare: a call stands only where the answer's text would begin.
        special: whether the marks are special tokens.
    """

    family: str
    hint: str
    tokens: tuple[str, ...]
    call: Callable[[str], str]
    end: str = "<|im_end|>"
    open: str = ""
    close: str = ""
    opener: str
    broken: str = ""
    bare: bool = False
    special: bool = False

    def thinks(self, thought: str) -> str:
        return f"{self.open}{thought}{self.close}"

    @property
    def template(self) -> str:
        """ChatML that opens reasoning when the user says `Think`."""
        return (
            "{# " + self.hint + " #}{% for m in messages %}"
            "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
            "<|im_start|>assistant\n"
            "{% if messages[-1].content == 'Think' %}" + self.open + "{% endif %}"
        )


def _json(city: str, key: str = "arguments") -> str:
    return f'{{"name": "w", "{key}": {json.dumps({"city": city}, ensure_ascii=False)}}}'


def _hermes(city: str) -> str:
    return f"<tool_call>\n{_json(city)}\n</tool_call>"


def _xml(city: str) -> str:
    return (
        f"<tool_call>\n<function=w>\n<parameter=city>\n{city}\n</parameter>\n</function>\n"
        "</tool_call>"
    )


_THINK = ("<think>", "</think>")
_TOOL_CALL = ("<tool_call>", "</tool_call>")
_LFM2 = ("<|tool_call_start|>", "<|tool_call_end|>")
_BROKEN_JSON = '{"name": "w", "arguments": {"city": Paris!}}'
_BROKEN_XML = "<tool_call>\n<function=w>\nParis\n</function>\n</tool_call>"
_OPEN, _CLOSE = "<think>\n", "\n</think>\n\n"
_GEMMA4 = (
    "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<turn|>",
    "<|tool_response>",
)  # fmt: skip

CASES = {
    "qwen3-hermes": Case(
        family="qwen3",
        hint="<tool_call> <think>",
        tokens=(*_THINK, *_TOOL_CALL),
        call=_hermes,
        opener="<tool_call>",
        broken=f"<tool_call>\n{_BROKEN_JSON}\n</tool_call>",
        open=_OPEN,
        close=_CLOSE,
    ),
    "qwen3-xml": Case(
        family="qwen3",
        hint="<tool_call> <function= <think>",
        tokens=(*_THINK, *_TOOL_CALL),
        call=_xml,
        opener="<tool_call>",
        broken=_BROKEN_XML,
        open=_OPEN,
        close=_CLOSE,
    ),
    "nemotron-v2": Case(
        family="nemotron_h",
        hint="<TOOLCALL>",
        tokens=("<SPECIAL_11>", "<SPECIAL_12>"),
        special=True,
        call=lambda city: f"<TOOLCALL>[{_json(city)}]</TOOLCALL>",
        end="<SPECIAL_12>",
        opener="<TOOLCALL>",
        broken=f"<TOOLCALL>[{_BROKEN_JSON}]</TOOLCALL>",
        open=_OPEN,
        close=_CLOSE,
    ),
    "nemotron-3": Case(
        family="nemotron_h",
        hint="<think>",
        tokens=(*_THINK, *_TOOL_CALL),
        special=True,
        call=_xml,
        opener="<tool_call>",
        broken=_BROKEN_XML,
        open=_OPEN,
        close=_CLOSE,
    ),
    "gemma4": Case(
        family="gemma4",
        hint="",
        tokens=_GEMMA4,
        special=True,
        call=lambda city: f'<|tool_call>call:w{{city:<|"|>{city}<|"|>}}<tool_call|>',
        end="<turn|>",
        open="<|channel>thought\n",
        close="\n<channel|>",
        opener="<|tool_call>",
        broken="<|tool_call>call:w{city:}<tool_call|>",
    ),
    "lfm2": Case(
        family="lfm2_vl",
        hint="<think>",
        tokens=(*_THINK, *_LFM2),
        special=True,
        call=lambda city: f"<|tool_call_start|>[w(city={city!r})]<|tool_call_end|>",
        opener="<|tool_call_start|>",
        broken="<|tool_call_start|>[w(city=)]<|tool_call_end|>",
        open=_OPEN,
        close=_CLOSE,
    ),
    "lfm2 in JSON": Case(
        family="lfm2_vl",
        hint="<think>",
        tokens=(*_THINK, *_LFM2),
        special=True,
        call=lambda city: f"<|tool_call_start|>[{_json(city)}]<|tool_call_end|>",
        opener="<|tool_call_start|>",
        broken="<|tool_call_start|>[w(city=)]<|tool_call_end|>",
        open=_OPEN,
        close=_CLOSE,
    ),
    "minicpm5": Case(
        family="minicpm",
        hint="<function name= <think>",
        tokens=(*_THINK, "<function", "</function>", "<param", "</param>"),
        call=lambda city: f'<function name="w"><param name="city">{city}</param></function>',
        opener="<function",
        broken='<function name="w"><param>Paris</param></function>',
        open=_OPEN,
        close=_CLOSE,
    ),
    "minicpm3": Case(
        family="minicpm",
        hint="<|thought_start|> tool_calls",
        tokens=("<|thought_start|>", "<|thought_end|>", *_LFM2),
        special=True,
        call=lambda city: (
            f'<|tool_call_start|>\n```python\nw(city="{city}")\n```\n<|tool_call_end|>\n'
        ),
        open="<|thought_start|>\n",
        close="\n<|thought_end|>\n",
        opener="<|tool_call_start|>",
        broken="<|tool_call_start|>\n```python\nw(city=)\n```\n<|tool_call_end|>",
    ),
    "minicpm-hermes": Case(
        family="minicpm",
        hint="<tool_call> <think>",
        tokens=(*_THINK, *_TOOL_CALL),
        call=_hermes,
        opener="<tool_call>",
        broken=f"<tool_call>\n{_BROKEN_JSON}\n</tool_call>",
        open=_OPEN,
        close=_CLOSE,
    ),
    "minicpm-xml": Case(
        family="minicpm",
        hint="<tool_call> <function= <think>",
        tokens=(*_THINK, *_TOOL_CALL),
        call=_xml,
        opener="<tool_call>",
        broken=_BROKEN_XML,
        open=_OPEN,
        close=_CLOSE,
    ),
    "llama3-json": Case(
        family="llama",
        hint='"parameters": tools tool_calls',
        tokens=("<|python_tag|>", "<|eot_id|>", "<|eom_id|>"),
        special=True,
        call=lambda city: _json(city, "parameters"),
        end="<|eot_id|>",
        opener="<|python_tag|>",
        bare=True,
    ),
    "llama3-json with its tag": Case(
        family="llama",
        hint='"parameters": tools tool_calls',
        tokens=("<|python_tag|>", "<|eot_id|>", "<|eom_id|>"),
        special=True,
        call=lambda city: "<|python_tag|>" + _json(city, "parameters"),
        end="<|eom_id|>",
        opener="<|python_tag|>",
    ),
    "llama-hermes": Case(
        family="llama",
        hint="<tool_call> tool_calls",
        tokens=_TOOL_CALL,
        call=_hermes,
        opener="<tool_call>",
        broken=f"<tool_call>\n{_BROKEN_JSON}\n</tool_call>",
    ),
}


@dataclass(frozen=True)
class Subject:
    case: Case
    scripted: ScriptedEngine

    @property
    def dialect(self) -> Dialect:
        return self.scripted.engine.machine.loaded.runtime.voice.dialect


# Each dialect is read in every way by its own family's tests; a thorough run asks engines for all.
@pytest.fixture(scope="module", params=list(some(CASES, count=len(CASES), most=5)))
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    case = CASES[request.param]
    llama = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module(f"phyla_families.{case.family}.dialect").dialect
    with ScriptedEngine(
        tmp_path_factory.mktemp("dialect") / "tiny",
        CONFIG,
        replace(llama, dialect=dialect),
        chat_template=case.template,
        marks=case.tokens,
        special_marks=case.special,
        end=case.end,
    ) as scripted:
        found = Subject(case, scripted)
        assert found.dialect.name == request.param.split()[0]
        yield found


@pytest.fixture
def thinker(subject: Subject) -> Subject:
    """A subject whose model reasons."""
    if not subject.case.open:
        pytest.skip("this model does not reason")
    return subject


def story(stream: Stream) -> tuple[list[tuple[object, ...]], Reply]:
    """A stream's events, with neighbouring deltas joined, and its reply."""
    told: list[tuple[object, ...]] = []
    reply: Reply | None = None
    for event in stream:
        assert reply is None, "nothing follows the end"
        match event:
            case Finished(reply=reply):
                continue
            case TextDelta(text=text):
                told.append(("text", text))
            case ReasoningDelta(text=text):
                told.append(("reasoning", text))
            case ToolCallStarted(index=index, id=call_id, name=name):
                told.append(("started", index, call_id, name))
            case ToolCallDelta(index=index, arguments=piece):
                told.append(("arguments", index, piece))
            case ToolCallFinished(index=index, call=call):
                told.append(("finished", index, call))
            case ToolCallFailed(index=index, error=error):
                told.append(("failed", index, error))
        if len(told) > 1 and told[-1][0] in ("text", "reasoning", "arguments"):
            *_, before, last = told
            if before[:-1] == last[:-1]:
                told[-2:] = [(*last[:-1], f"{before[-1]}{last[-1]}")]
    assert reply is not None
    return told, reply


def typed(text: str) -> list[int]:
    """The ids of a text that is spelt out; its marks are no tokens."""
    return list(text.encode())


def test_reasoning_text_and_calls_arrive_in_order(subject: Subject) -> None:
    case, scripted = subject.case, subject.scripted
    said = "" if case.bare else "I look.\n"
    separator = "; " if case.bare else "\n"
    thought = case.thinks("It is\nabout a city.") if case.open else ""
    raw = f"{thought}{said}{case.call('Paris')}{separator}{case.call('Zürich')}"
    told, reply = story(scripted.stream(raw, tools=TOOLS))
    paris, rome = reply.tool_calls
    expected: list[tuple[object, ...]] = []
    if case.open:
        expected.append(("reasoning", "It is\nabout a city."))
    if said:
        expected.append(("text", "I look."))
    for index, call in enumerate((paris, rome)):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        expected += [
            ("started", index, call.id, "w"),
            ("arguments", index, arguments),
            ("finished", index, call),
        ]
    assert [_plain(each) for each in told] == [_plain(each) for each in expected]
    assert (paris.arguments, rome.arguments) == ({"city": "Paris"}, {"city": "Zürich"})
    assert paris.id != rome.id
    assert paris.raw.strip() == case.call("Paris").strip()
    assert reply.text == said.strip()
    assert reply.reasoning == ("It is\nabout a city." if case.open else "")
    assert reply.tool_call_errors == ()
    assert reply.finish_reason == "tool_calls"
    assert reply.tokens == tuple(scripted.ids(raw + case.end))
    assert reply.usage.completion_tokens == len(reply.tokens)


def _plain(event: tuple[object, ...]) -> tuple[object, ...]:
    """An event whose arguments can be compared, however their JSON is spaced."""
    if event[0] == "arguments":
        return (*event[:-1], json.loads(str(event[-1])))
    return event


def test_an_answer_ends_with_the_turn(subject: Subject) -> None:
    thought = subject.case.thinks("Hm.") if subject.case.open else ""
    told, reply = story(subject.scripted.stream(thought + "It is 4.", tools=TOOLS))
    assert told[-1] == ("text", "It is 4.")
    assert (reply.text, reply.finish_reason) == ("It is 4.", "stop")
    assert reply.tool_calls == ()


def test_every_kind_of_end_of_turn_ends_it(subject: Subject) -> None:
    scripted = subject.scripted
    for end in subject.dialect.extra_eos:
        if scripted.engine.tokenizer.token_id(end) is None:
            continue
        ids = scripted.ids(f"Hi{end}there")
        reply = scripted.chat(ids)
        assert (reply.text, reply.finish_reason, len(reply.tokens)) == ("Hi", "stop", 3), end


def test_an_answer_is_cut_by_max_tokens(subject: Subject) -> None:
    reply = subject.scripted.chat("It is 4.", options={"max_tokens": 5})
    assert (reply.text, reply.finish_reason) == ("It is", "length")


def test_a_call_that_is_complete_when_the_tokens_end_leaves_the_reason(subject: Subject) -> None:
    scripted, call = subject.scripted, subject.case.call("Paris")
    reply = scripted.chat(call, tools=TOOLS, options={"max_tokens": len(scripted.ids(call))})
    assert [each.name for each in reply.tool_calls] == ["w"]
    assert reply.finish_reason == "length"


def test_bug_33_a_call_cut_by_max_tokens_is_incomplete(subject: Subject) -> None:
    scripted, call = subject.scripted, subject.case.call("Paris")
    cut = call[: call.index("Par") + 3]
    told, reply = story(
        scripted.stream(call, tools=TOOLS, options={"max_tokens": len(scripted.ids(cut))})
    )
    assert reply.tool_calls == ()
    (error,) = reply.tool_call_errors
    assert (error.raw, error.incomplete) == (cut, True)
    assert told[0][0] == "started"
    assert told[-1] == ("failed", 0, error)
    assert (reply.finish_reason, reply.text) == ("length", "")


def test_a_turn_that_ends_inside_a_call_wants_no_tool_called(subject: Subject) -> None:
    call = subject.case.call("Paris")
    reply = subject.scripted.chat(call[: call.index("Par") + 3], tools=TOOLS)
    assert (len(reply.tool_calls), len(reply.tool_call_errors)) == (0, 1)
    assert reply.finish_reason == "stop"


def test_without_tools_a_call_is_text(subject: Subject) -> None:
    call = subject.case.call("Paris").strip()
    reply = subject.scripted.chat(call)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == (call, (), "stop")


def test_tokens_of_reasoning_are_counted(thinker: Subject) -> None:
    case, scripted = thinker.case, thinker.scripted
    raw = case.thinks("plan") + "4"
    reply = scripted.chat(raw)
    marks = thinker.dialect.reasoning
    assert marks is not None
    inside = raw.removeprefix(marks.open).partition(marks.close)[0]
    assert reply.usage.reasoning_tokens == len(inside)
    assert reply.usage.completion_tokens == len(reply.tokens)


def test_bug_16_an_answer_that_is_empty_is_not_filled_with_reasoning(thinker: Subject) -> None:
    told, reply = story(thinker.scripted.stream(thinker.case.thinks("plan")))
    assert told == [("reasoning", "plan")]
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("", "plan", "stop")


def test_bug_17_a_prompt_that_opens_reasoning_begins_the_reply_in_it(thinker: Subject) -> None:
    case, scripted = thinker.case, thinker.scripted
    prompt = scripted.engine.encode("Think", tools=TOOLS)
    assert prompt.opens_reasoning
    told, reply = story(scripted.stream(f"plan{case.close}answer", prompt))
    assert told == [("reasoning", "plan"), ("text", "answer")]
    assert (reply.reasoning, reply.text) == ("plan", "answer")
    told, reply = story(scripted.stream(f"plan{case.close}{case.call('Paris')}", prompt))
    assert [each[0] for each in told] == ["reasoning", "started", "arguments", "finished"]
    assert (reply.reasoning, reply.finish_reason) == ("plan", "tool_calls")


def test_reasoning_that_is_cut_stays_reasoning(thinker: Subject) -> None:
    scripted = thinker.scripted
    opening = len(scripted.ids(thinker.case.open))
    told, reply = story(
        scripted.stream(thinker.case.thinks("a long plan"), options={"max_tokens": opening + 6})
    )
    assert told == [("reasoning", "a long")]
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("", "a long", "length")
    prompt = scripted.engine.encode("Think")
    reply = scripted.chat("a long plan", prompt, options={"max_tokens": 6})
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("", "a long", "length")


def test_bug_39_stop_texts_count_in_the_answer_only(subject: Subject) -> None:
    case = subject.case
    thought = case.thinks("Say END and stop.") if case.open else ""
    raw = f"{thought}{case.call('END')}\nIt is the END of it"
    told, reply = story(subject.scripted.stream(raw, tools=TOOLS, options={"stop": "END"}))
    assert told[-1] == ("text", "It is the ")
    assert reply.text == "It is the "
    assert reply.reasoning == ("Say END and stop." if case.open else "")
    assert [call.arguments for call in reply.tool_calls] == [{"city": "END"}]
    assert reply.finish_reason == "stop"
    assert reply.tokens == tuple(subject.scripted.ids(raw))[: len(reply.tokens)]
    assert subject.scripted.engine.tokenizer.decode(reply.tokens).endswith("the END")


def test_bug_39_half_a_stop_text_or_mark_at_the_end_is_not_lost(subject: Subject) -> None:
    for half in ("It is the EN", "a < b <t", "<"):
        reply = subject.scripted.chat(half, tools=TOOLS, options={"stop": ["END", "<thx"]})
        assert (reply.text, reply.finish_reason) == (half, "stop")


def test_bug_20_marks_that_the_model_spells_out_are_text(thinker: Subject) -> None:
    case, scripted = thinker.case, thinker.scripted
    marks = thinker.dialect.reasoning
    assert marks is not None
    literal = f"Use `{marks.open}x{marks.close}` tags"
    end = scripted.ids(case.end)
    reply = scripted.chat([*scripted.ids(case.thinks("plan")), *typed(literal), *end], tools=TOOLS)
    assert (reply.text, reply.reasoning) == (literal, "plan")


def test_bug_20_a_call_that_the_model_spells_out_is_text_where_marks_are_tokens(
    subject: Subject,
) -> None:
    case, scripted = subject.case, subject.scripted
    if case.opener not in case.tokens or case.bare:
        pytest.skip("this model's calls need no token")
    call = case.call("Paris").strip()
    ids = [*typed(f"So: {call}"), *scripted.ids(case.end)]
    reply = scripted.chat(ids, tools=TOOLS)
    if "<function=" in call:
        # Its functions count without their wrapper, whose token is missing.
        assert [each.arguments for each in reply.tool_calls] == [{"city": "Paris"}]
        return
    assert (reply.text, reply.tool_calls) == (f"So: {call}", ())


def test_bug_21_a_call_inside_reasoning_is_a_call(thinker: Subject) -> None:
    case = thinker.case
    raw = f"{case.open}read it\n{case.call('Paris')}{case.close}"
    told, reply = story(thinker.scripted.stream(raw, tools=TOOLS))
    assert [each[0] for each in told] == ["reasoning", "started", "arguments", "finished"]
    assert (reply.reasoning, reply.text) == ("read it", "")
    assert [call.arguments for call in reply.tool_calls] == [{"city": "Paris"}]
    assert reply.finish_reason == "tool_calls"


def test_bug_23_a_marker_as_prose_loses_nothing(subject: Subject) -> None:
    said = f"Write {subject.case.opener} before the call. Done."
    told, reply = story(subject.scripted.stream(said, tools=TOOLS))
    assert told == [("text", said)]
    assert (reply.text, reply.tool_calls, reply.tool_call_errors) == (said, (), ())


def test_a_broken_call_stands_next_to_a_good_one(subject: Subject) -> None:
    case = subject.case
    if not case.broken:
        pytest.skip("what is broken is no call at all")
    told, reply = story(subject.scripted.stream(f"{case.broken}\n{case.call('Rome')}", tools=TOOLS))
    assert [call.arguments for call in reply.tool_calls] == [{"city": "Rome"}]
    (error,) = reply.tool_call_errors
    assert (error.raw.strip(), error.incomplete) == (case.broken, False)
    assert [each[0] for each in told if each[0] in ("failed", "finished")] == ["failed", "finished"]
    assert (reply.text, reply.finish_reason) == ("", "tool_calls")


@pytest.mark.parametrize("asked", ["Hi", "Think"])
@pytest.mark.parametrize("choice", ["required", "w"])
def test_a_reply_that_must_be_a_call_is_one(choice: str, asked: str, subject: Subject) -> None:
    scripted, dialect = subject.scripted, subject.dialect
    assert dialect.tools is not None
    opening = dialect.tools.opening(None if choice == "required" else choice)
    call = subject.case.call("Paris").strip()
    if not call.startswith(opening):
        pytest.skip("a call is not opened in this spelling")
    prompt = scripted.engine.encode(asked, tools=TOOLS, tool_choice=choice)
    assert prompt.text.endswith(opening)
    assert not prompt.opens_reasoning
    told, reply = story(scripted.stream(call.removeprefix(opening), prompt))
    assert [each[0] for each in told] == ["started", "arguments", "finished"]
    assert [each.arguments for each in reply.tool_calls] == [{"city": "Paris"}]
    assert reply.tool_calls[0].raw == call
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("", "", "tool_calls")


def test_a_spent_budget_closes_reasoning_through_the_model(thinker: Subject) -> None:
    scripted, marks = thinker.scripted, thinker.dialect.reasoning
    assert marks is not None
    ending = scripted.ids(marks.ending)
    # The places of the forced tokens are in the script too.
    said = "thinks" + "?" * len(ending)
    prompt = scripted.engine.encode("Think")
    options = {"reasoning_budget": 6, "logprobs": True}
    told, reply = story(scripted.stream(f"{said}answer", prompt, options=options))
    assert told == [("reasoning", "thinks"), ("text", "answer")]
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("thinks", "answer", "stop")
    assert reply.tokens == (
        *typed("thinks"), *ending, *typed("answer"), *scripted.ids(thinker.case.end),
    )  # fmt: skip
    assert reply.usage.reasoning_tokens == 6
    assert reply.logprobs is not None
    assert [entry.token for entry in reply.logprobs] == list(reply.tokens)


def test_log_probabilities_come_one_for_each_token(subject: Subject) -> None:
    case = subject.case
    thought = case.thinks("plan") if case.open else ""
    for raw in (f"{thought}It is 4.", thought + case.call("Paris")):
        events = list(subject.scripted.stream(raw, tools=TOOLS, options={"logprobs": True}))
        last = events[-1]
        assert isinstance(last, Finished)
        entries = last.reply.logprobs
        assert entries is not None
        assert [entry.token for entry in entries] == list(last.reply.tokens)
        told = [e for event in events if isinstance(event, TextDelta) for e in event.logprobs]
        assert tuple(told) == entries


def test_a_reply_can_be_asked_for_again(subject: Subject) -> None:
    raw = subject.case.call("Paris")
    first, second = (subject.scripted.chat(raw, tools=TOOLS, options={"seed": 3}) for _ in range(2))
    assert first.tool_calls == second.tool_calls
    other = subject.scripted.chat(raw, "Hello", tools=TOOLS, options={"seed": 3})
    assert other.tool_calls[0].id != first.tool_calls[0].id
