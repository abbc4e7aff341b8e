"""Every published chat template is told apart, and its dialect agrees with what it renders."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from phyla.engine.template import ChatTemplate
from phyla.messages import read_messages, read_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from phyla.checkpoint import Checkpoint
    from phyla.family import Dialect, ThinkingSetting

PUBLISHED = Path(__file__).parents[3] / "shared" / "templates"


class Expected(NamedTuple):
    """What a template's dialect is.

    `opens` says whether a prompt ends inside reasoning: by default, with thinking, and without;
    None where that cannot be asked for.
    """

    family: str
    dialect: str
    tools: str
    opens: tuple[bool, bool | None, bool | None]
    efforts: tuple[str, ...] = ()


_SWITCHED = (False, False, False)
_QWEN35 = Expected("qwen3", "qwen3-xml", "function-xml", (True, True, False))
_QWEN_ANSWERS = Expected("qwen3", "qwen3-hermes", "hermes", (False, None, False))
_NEMOTRON3 = Expected("nemotron_h", "nemotron-3", "function-xml", (True, True, False))
_GEMMA = Expected("gemma4", "gemma4", "gemma4", _SWITCHED)
_LFM_ANSWERS = Expected("lfm2_vl", "lfm2", "lfm2", (False, None, False))
_LFM_THINKS = Expected("lfm2_vl", "lfm2", "lfm2", (False, False, None))

TEMPLATES = {
    "gemma4-e2b-2026-04": _GEMMA,
    "gemma4-e2b-2026-07": _GEMMA,
    "gemma4-full-2026-04": _GEMMA,
    "gemma4-full-2026-07": _GEMMA,
    "gemma4-launch-2026-04": _GEMMA,
    "lfm2-8b-a1b": _LFM_ANSWERS,
    "lfm2-json-variant-llamacpp": _LFM_ANSWERS,
    "lfm2.5-2.6b": _LFM_THINKS._replace(opens=(True, True, None)),
    "lfm2.5-8b-a1b-r2": _LFM_THINKS,
    "lfm2.5-8b-a1b": _LFM_THINKS,
    "lfm2.5-instruct-1.2b": _LFM_ANSWERS,
    "minicpm3-tool": Expected("minicpm", "minicpm3", "minicpm-python", (False, None, None)),
    "minicpm5-1b": Expected("minicpm", "minicpm5", "minicpm-xml", (False, True, False)),
    "minicpmv45-vllm": Expected("minicpm", "minicpm-hermes", "hermes", (False, True, False)),
    "nemotron-3-nano": _NEMOTRON3,
    "nemotron-3-super": _NEMOTRON3._replace(efforts=("low",)),
    "nemotron-3-ultra": _NEMOTRON3._replace(efforts=("medium",)),
    "nemotron-3.5-lightning": _NEMOTRON3,
    "nemotron-nano-v2": _NEMOTRON3._replace(dialect="nemotron-v2", tools="nemotron-list"),
    "qwen3-coder": _QWEN35._replace(opens=(False, None, False)),
    "qwen3-hub-current": _QWEN_ANSWERS._replace(opens=_SWITCHED),
    "qwen3-instruct-2507": _QWEN_ANSWERS,
    "qwen3-original-2504": _QWEN_ANSWERS._replace(opens=_SWITCHED),
    "qwen3-vl": _QWEN_ANSWERS,
    "qwen3.5-nothink": _QWEN35._replace(opens=(False, True, False)),
    "qwen3.5-think": _QWEN35,
    "qwen3.6": _QWEN35,
    "qwen3.8": _QWEN35._replace(efforts=("low", "medium", "xhigh")),
}


# All of this is of the module: a published template takes a while to compile.
@pytest.fixture(scope="module", params=TEMPLATES)
def name(request: pytest.FixtureRequest) -> str:
    if not (PUBLISHED / f"{request.param}.jinja").exists():
        pytest.skip("the published templates are not here")
    return request.param


@pytest.fixture(scope="module")
def source(name: str) -> str:
    return (PUBLISHED / f"{name}.jinja").read_text()


@pytest.fixture(scope="module")
def dialect(name: str, source: str, checkpoint_of: Callable[..., Checkpoint]) -> Dialect:
    module = importlib.import_module(f"phyla_families.{TEMPLATES[name].family}.dialect")
    return module.dialect(checkpoint_of("any", chat_template=source))


@pytest.fixture(scope="module")
def template(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, {"bos_token": "<s>"})


def test_a_published_template_has_its_dialect(name: str, dialect: Dialect) -> None:
    expected = TEMPLATES[name]
    assert dialect.tools is not None
    assert (dialect.name, dialect.tools.name) == (expected.dialect, expected.tools)
    assert tuple(dialect.thinking.efforts) == expected.efforts


def test_whether_a_prompt_ends_inside_reasoning(
    name: str, dialect: Dialect, template: ChatTemplate
) -> None:
    for thinking, opens in zip((None, True, False), TEMPLATES[name].opens, strict=True):
        setting = dialect.thinking.on if thinking else dialect.thinking.off
        if thinking is None:
            setting = dialect.thinking_setting(None)
        if opens is None:
            assert setting is None, thinking
        else:
            assert setting is not None, thinking
            assert dialect.opens_reasoning(_rendered(template, setting)) == opens, thinking


def test_words_of_the_user_open_no_reasoning(
    name: str, dialect: Dialect, template: ChatTemplate
) -> None:
    marks = dialect.reasoning
    assert marks is not None
    setting = dialect.thinking_setting(None)
    text = _rendered(template, setting, f"What does {marks.open} mean?")
    assert dialect.opens_reasoning(text) == TEMPLATES[name].opens[0]


def test_every_effort_is_one_that_the_template_takes(
    dialect: Dialect, template: ChatTemplate
) -> None:
    texts = {effort: _rendered(template, s) for effort, s in dialect.thinking.efforts.items()}
    assert all(dialect.opens_reasoning(text) for text in texts.values())
    assert len(set(texts.values())) == len(texts)


def test_history_shows_what_the_dialect_says(dialect: Dialect, template: ChatTemplate) -> None:
    history = dialect.history
    text = template.render(read_messages(_CONVERSATION), _TOOLS)
    assert history.calls == any(f"zzz{mark}" in text.split("two")[-1] for mark in '("{>')
    if dialect.name == "minicpm3":
        return  # reads `thought`, and nothing else
    expected = {
        "none": (False, False),
        "since the last question": (False, True),
        "all": (True, True),
    }[history.reasoning]
    if history.inline:
        marks = dialect.reasoning
        assert marks is not None
        assert _thoughts(text) == (False, False)
        text = template.render(read_messages(_inline(marks.open, marks.close)), _TOOLS)
    assert _thoughts(text) == expected


def test_history_keeps_reasoning_when_it_is_told_to(
    name: str, dialect: Dialect, template: ChatTemplate
) -> None:
    history, marks = dialect.history, dialect.reasoning
    if history.keep_variable is None:
        return
    assert marks is not None
    conversation = _inline(marks.open, marks.close) if history.inline else _CONVERSATION
    text = template.render(
        read_messages(conversation),
        _TOOLS,
        variables={history.keep_variable: history.keep_value},
    )
    # Gemma's keeps, of the turns before the last question, only those that call a tool.
    assert _thoughts(text) == (not name.startswith("gemma"), True)


def test_gemmas_prompt_ends_inside_reasoning_after_a_tools_result(
    name: str, dialect: Dialect, template: ChatTemplate
) -> None:
    if dialect.name != "gemma4":
        return
    text = template.render(
        read_messages(_CONVERSATION), _TOOLS, variables=dialect.thinking_variables(True)
    )
    assert dialect.opens_reasoning(text) == name.endswith("-07")


_TOOLS = read_tools([{"name": "zzz"}])
_CALL = {"id": "call00001", "function": {"name": "zzz", "arguments": {"a": 1}}}
_RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "found"}
_CONVERSATION = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "A", "reasoning": "first thought"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "", "reasoning": "second thought", "tool_calls": [_CALL]},
    _RESULT,
]


def _inline(opened: str, closed: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": f"{opened}first thought{closed}A"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": f"{opened}second thought{closed}", "tool_calls": [_CALL]},
        _RESULT,
    ]


def _thoughts(text: str) -> tuple[bool, bool]:
    return "first thought" in text, "second thought" in text


def _rendered(template: ChatTemplate, setting: ThinkingSetting, question: str = "hi") -> str:
    messages = [{"role": "user", "content": question}]
    if setting.instruction:
        messages.insert(0, {"role": "system", "content": setting.instruction})
    return template.render(read_messages(messages), variables=setting.variables)
