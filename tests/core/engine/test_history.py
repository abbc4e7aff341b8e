"""What a model said goes back to it: as its template shows it, and with nothing lost or leaked."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from phyla.engine.history import told
from phyla.engine.template import ChatTemplate
from phyla.family import Dialect, History, ReasoningMarks
from phyla.messages import Message, Reasoning, Text, Tool, ToolCall, ToolResult, read_messages
from phyla.testing import ScriptedEngine
from phyla.testing.blocks import read_block
from phyla.tools.hermes import HermesFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from phyla.checkpoint import Checkpoint
    from phyla.messages import MessageLike

PUBLISHED = Path(__file__).parents[4] / "shared" / "templates"
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
TOOLS = (Tool(name="w", parameters={"type": "object", "properties": {"city": {}}}),)

# A template like Qwen3's: it has fields for everything, and shows reasoning in a loop of calls.
FIELDS = """{#- <tool_call> <think> #}
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content and loop.index0 > ns.last %}
{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}
{%- endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}
{{- '\n' if m.content or not loop.first }}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson }}{{ '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# One like LFM2's: it knows nothing but text, and drops what was thought about older questions.
TEXT_ONLY = """{#- <think> #}
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- set content = m.content %}
{%- if m.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
{%- set content = content.split('</think>')[-1] | trim %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_THINK = ("<think>", "</think>")


@dataclass(frozen=True)
class Kind:
    family: str
    template: str
    tokens: tuple[str, ...]
    call: str
    before_call: str = ""


KINDS = {
    "fields": Kind(
        "qwen3",
        FIELDS,
        (*_THINK, "<tool_call>", "</tool_call>"),
        '<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>',
        "\n",
    ),
    "text only": Kind(
        "lfm2_vl",
        TEXT_ONLY,
        (*_THINK, "<|tool_call_start|>", "<|tool_call_end|>"),
        "<|tool_call_start|>[w(city='Paris')]<|tool_call_end|>",
    ),
}


@dataclass(frozen=True)
class Subject:
    kind: Kind
    scripted: ScriptedEngine

    def prompt(self, *messages: MessageLike) -> str:
        return self.scripted.engine.encode(messages, tools=TOOLS).text


@pytest.fixture(scope="module", params=KINDS)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    kind = KINDS[request.param]
    llama = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module(f"phyla_families.{kind.family}.dialect").dialect
    with ScriptedEngine(
        tmp_path_factory.mktemp("history") / "tiny",
        CONFIG,
        replace(llama, dialect=dialect),
        chat_template=kind.template,
        marks=kind.tokens,
    ) as scripted:
        yield Subject(kind, scripted)


ASK = {"role": "user", "content": "Weather?"}


def as_openai(message: Message) -> dict[str, Any]:
    """A message as a client of the OpenAI API sends it back; it knows no `raw`."""
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": json.dumps(block.arguments)},
        }
        for block in message.blocks
        if isinstance(block, ToolCall)
    ]
    thought = "".join(block.text for block in message.blocks if isinstance(block, Reasoning))
    return {
        "role": message.role,
        "content": message.text or None,
        **({"reasoning_content": thought} if thought else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def result(message: Message, text: str) -> dict[str, Any]:
    call = next(block for block in message.blocks if isinstance(block, ToolCall))
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def test_a_turn_comes_back_in_the_models_own_words(subject: Subject) -> None:
    kind = subject.kind
    said = f"<think>\nplan\n</think>\n\nI look.{kind.before_call}{kind.call}"
    reply = subject.scripted.chat(said, [ASK], tools=TOOLS)
    assert reply.finish_reason == "tool_calls"
    expected = (
        f"{subject.prompt(ASK)}{said}<|im_end|>\n"
        "<|im_start|>tool\nSunny<|im_end|>\n<|im_start|>assistant\n"
    )
    message = reply.message
    assert subject.prompt(ASK, message, result(message, "Sunny")) == expected
    assert subject.prompt(ASK, as_openai(message), result(message, "Sunny")) == expected


def test_a_message_of_blocks_is_the_same_as_one_in_the_openai_form(subject: Subject) -> None:
    call = ToolCall(id="call_1", name="w", arguments={"city": "Paris"})
    message = Message(
        role="assistant", content=(Reasoning(text="plan"), Text(text="I look."), call)
    )
    answer = Message(role="tool", content=(ToolResult(call_id="call_1", text="Sunny"),))
    found = subject.prompt(ASK, message, answer)
    assert found == subject.prompt(ASK, as_openai(message), result(message, "Sunny"))
    said = f"<think>\nplan\n</think>\n\nI look.{subject.kind.before_call}{subject.kind.call}"
    assert said in found


def test_what_was_thought_is_no_part_of_the_answer(subject: Subject) -> None:
    reply = subject.scripted.chat("<think>\nsecret\n</think>\n\nIt is sunny.", [ASK])
    assert reply.message.text == reply.text == "It is sunny."
    prompt = subject.prompt(ASK, reply.message, {"role": "user", "content": "And then?"})
    assert "secret" not in prompt
    assert "It is sunny.<|im_end|>" in prompt


def test_bug_11_a_history_without_its_reasoning_is_the_same_prompt(subject: Subject) -> None:
    first = subject.prompt(ASK)
    reply = subject.scripted.chat("<think>\nplan\n</think>\n\nIt is sunny.", [ASK])
    then = {"role": "user", "content": "And then?"}
    kept = subject.prompt(ASK, reply.message, then)
    stripped = subject.prompt(ASK, {"role": "assistant", "content": reply.text}, then)
    assert kept == stripped
    assert stripped.startswith(f"{first}It is sunny.<|im_end|>\n")


def test_a_loop_of_calls_only_grows(subject: Subject) -> None:
    kind = subject.kind
    messages: list[MessageLike] = [ASK]
    before = subject.prompt(*messages)
    for turn in ("first", "second", "third"):
        said = f"<think>\n{turn}\n</think>\n\n{kind.call}"
        reply = subject.scripted.chat(said, messages, tools=TOOLS)
        messages += [reply.message, result(reply.message, f"{turn} result")]
        prompt = subject.prompt(*messages)
        assert prompt.startswith(before + said)
        before = prompt
    ids = [
        block.id
        for message in messages
        if isinstance(message, Message)
        for block in message.blocks
        if isinstance(block, ToolCall)
    ]
    assert len(set(ids)) == 3


def test_several_calls_of_a_turn_come_back(subject: Subject) -> None:
    kind = subject.kind
    other = kind.call.replace("Paris", "Rome")
    reply = subject.scripted.chat(f"{kind.call}\n{other}", [ASK], tools=TOOLS)
    assert len(reply.tool_calls) == 2
    for message in (reply.message, as_openai(reply.message)):
        prompt = subject.prompt(ASK, message)
        assert prompt.index("Paris") < prompt.index("Rome")


def test_a_call_made_because_it_had_to_be_comes_back_whole(subject: Subject) -> None:
    kind = subject.kind
    prompt = subject.scripted.engine.encode([ASK], tools=TOOLS, tool_choice="w")
    assert kind.call.startswith(prompt.seed)
    reply = subject.scripted.chat(kind.call.removeprefix(prompt.seed), prompt)
    found = subject.prompt(ASK, reply.message, result(reply.message, "Sunny"))
    assert found.startswith(subject.prompt(ASK) + kind.call + "<|im_end|>")


# `told`, where a template has no field.

MARKS = ReasoningMarks(open="<think>", close="</think>", ending="</think>")
CALL = ToolCall(id="1", name="w", arguments={"city": "Paris"})


def _texts(dialect: Dialect, *blocks: Any) -> list[Any]:
    (message,) = told([Message(role="assistant", content=blocks)], dialect)
    return list(message.blocks)


def test_what_a_template_has_fields_for_is_left_alone() -> None:
    dialect = Dialect(name="d", reasoning=MARKS, tools=HermesFormat())
    message = Message(role="assistant", content=(Reasoning(text="plan"), CALL))
    assert told([message], dialect) == (message,)
    assert told([message], dialect)[0] is message


def test_calls_are_written_only_where_the_models_own_words_are_missing() -> None:
    history = History(calls=False, write=HermesFormat().written)
    dialect = Dialect(name="d", tools=HermesFormat(), history=history)
    raw = CALL.model_copy(update={"raw": "<tool_call>{...}</tool_call>"})
    assert _texts(dialect, Text(text="a"), raw, raw) == [Text(text="a"), Text(text=raw.raw * 2)]
    written = '<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>'
    assert _texts(dialect, CALL) == [Text(text=written)]
    # Words of which some are missing are all written anew.
    assert _texts(dialect, raw, CALL) == [Text(text=f"{written}\n{written}")]


def test_calls_that_nobody_can_write_stay_calls() -> None:
    assert _texts(Dialect(name="d", history=History(calls=False)), CALL) == [CALL]


def test_what_others_say_is_left_alone() -> None:
    dialect = Dialect(name="d", reasoning=MARKS, history=History(inline=True, calls=False))
    messages = read_messages([{"role": "user", "content": "<think>"}, {"role": "system"}])
    assert told(messages, dialect) == messages


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([], "/think"),
        ([{"role": "system", "content": "Be brief.\n"}], "Be brief.\n/think"),
        ([{"role": "developer", "content": ""}], "/think"),
    ],
)
def test_an_instruction_ends_the_system_message(
    first: Sequence[Mapping[str, str]], expected: str
) -> None:
    messages = read_messages([*first, {"role": "user", "content": "Hi"}])
    found = told(messages, Dialect(name="d"), instruction="/think")
    assert [message.text for message in found] == [expected, "Hi"]


# What formats write, they read.

WRITERS = {
    "hermes": ("phyla.tools.hermes", "HermesFormat", {}),
    "llama": ("phyla_families.llama.format", "LlamaJsonFormat", {}),
    "lfm2": ("phyla_families.lfm2_vl.format", "TOOL_CALLS", None),
    "minicpm": ("phyla_families.minicpm.python_block", "PYTHON_BLOCK", None),
}
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"city": "Paris"},
    {"a": 1, "b": -2.5, "c": True, "d": None, "e": [], "f": {}},
    {"text": 'it\'s "quoted"\n\tover\\two lines ]) 東京'},
    {"nested": {"list": [1, [2, {"k": "v"}], None], "flag": False}},
    {"a key": 1, "b": "<|tool_call_start|>"},
    {"": 1},
]


@pytest.mark.parametrize("name", WRITERS)
def test_written_calls_are_read_as_the_same_calls(name: str) -> None:
    module, attribute, made = WRITERS[name]
    form = getattr(importlib.import_module(module), attribute)
    if made is not None:
        form = form(**made)
    for arguments in ARGUMENTS:
        found = read_block(form, [form.written([ToolCall(name="w", arguments=arguments)])], TOOLS)
        assert (found.calls, found.notes, found.rest) == ([("w", arguments)], (), ""), arguments
    if name != "hermes":  # a block of its own for each call
        calls = [ToolCall(name="w", arguments=arguments) for arguments in ARGUMENTS]
        assert read_block(form, [form.written(calls)], TOOLS).calls == [
            ("w", arguments) for arguments in ARGUMENTS
        ]


# Published templates.


@dataclass(frozen=True)
class Published:
    dialect: Dialect
    template: ChatTemplate

    def text(self, *messages: MessageLike, opening: bool = True) -> str:
        shown = told(read_messages(messages), self.dialect)
        return self.template.render(shown, TOOLS, add_generation_prompt=opening)

    @property
    def marks(self) -> ReasoningMarks:
        assert self.dialect.reasoning is not None
        return self.dialect.reasoning


_FAMILIES = {"gemma4": "gemma4", "lfm2": "lfm2_vl", "minicpm": "minicpm", "nemotron": "nemotron_h"}


@pytest.fixture(params=sorted(path.stem for path in PUBLISHED.glob("*.jinja")) or ["none"])
def published(
    request: pytest.FixtureRequest, checkpoint_of: Callable[..., Checkpoint]
) -> Published:
    path = PUBLISHED / f"{request.param}.jinja"
    if not path.exists():
        pytest.skip("the published templates are not here")
    source = path.read_text(encoding="utf-8")
    family = next((f for start, f in _FAMILIES.items() if path.stem.startswith(start)), "qwen3")
    module = importlib.import_module(f"phyla_families.{family}.dialect")
    dialect = module.dialect(checkpoint_of("any", chat_template=source))
    return Published(dialect, ChatTemplate({"default": source}, {"bos_token": "<s>"}))


def test_published_templates_show_calls_and_results_in_both_forms(published: Published) -> None:
    call = ToolCall(id="call00001", name="w", arguments={"city": "Zagreb"})
    message = Message(role="assistant", content=(Text(text="I look."), call))
    answer = Message(
        role="tool", content=(ToolResult(call_id="call00001", name="w", text="Sunny."),)
    )
    found = published.text(ASK, message, answer)
    asked, called, answered = (found.index(word) for word in ("Weather?", "Zagreb", "Sunny."))
    assert asked < called < answered
    assert found == published.text(ASK, as_openai(message), result(message, "Sunny."))


def test_bug_40_arguments_may_be_json_text_or_nothing(published: Published) -> None:
    for arguments in ('{"city": "Zagreb"}', {"city": "Zagreb"}, "", None):
        function = {"name": "w", "arguments": arguments}
        call = {"id": "call00001", "type": "function", "function": function}
        answer = {"role": "tool", "tool_call_id": "call00001", "content": "Sunny."}
        found = published.text(ASK, {"role": "assistant", "tool_calls": [call]}, answer)
        assert ("Zagreb" in found) == bool(arguments)


def test_bug_11_where_a_history_without_its_reasoning_leaves_the_first_prompt(
    published: Published,
) -> None:
    then = {"role": "user", "content": "And then?"}
    first = published.text(ASK)
    kept = published.text(
        ASK, {"role": "assistant", "reasoning_content": "secret", "content": "It is sunny."}, then
    )
    stripped = published.text(ASK, {"role": "assistant", "content": "It is sunny."}, then)
    history = published.dialect.history
    if history.reasoning == "all":
        assert "secret" in kept
    if "secret" in kept:
        # One that reads thoughts from the text keeps those of the last answer.
        assert history.reasoning == "all" or history.inline
    else:
        # Two put a line break where the thought was.
        assert "".join(kept.split()) == "".join(stripped.split())
    # All that comes before the place where the model begins to think is shared, or its empty
    # thoughts, where it is told not to.
    before = first[: _where_reasoning_begins(first, published.marks)]
    assert stripped.startswith(before)
    assert kept.startswith(before)


def _where_reasoning_begins(prompt: str, marks: ReasoningMarks) -> int:
    question = prompt.index("Weather?")
    place = prompt.find(marks.open, question)
    return len(prompt) if place < 0 else place


def test_published_templates_keep_reasoning_in_a_loop_of_calls_as_the_dialect_says(
    published: Published,
) -> None:
    call = ToolCall(id="call00001", name="w", arguments={"city": "Zagreb"})
    message = Message(role="assistant", content=(Reasoning(text="secret"), call))
    found = published.text(ASK, message, result(message, "Sunny."))
    assert ("secret" in found) == (published.dialect.history.reasoning != "none")
    if "secret" in found:
        opened, _, rest = found.partition("secret")
        assert opened.rstrip("\n").removesuffix("thought").endswith(published.marks.open)
        assert rest.lstrip("\n").startswith(published.marks.close)
