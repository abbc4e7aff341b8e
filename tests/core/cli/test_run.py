"""`phyla run` with a fake engine."""

from __future__ import annotations

import io
import json
import sys

import pytest

from phyla.errors import RequestError, TemplateError
from phyla.events import Reply


def test_the_reply_and_nothing_else_goes_to_standard_output(program, script):
    result = program(script(pieces=("Par", "is.")))("run", "m", "Where?")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")


def test_a_reply_that_ends_its_line_gets_no_second_line_end(program, script):
    assert program(script(pieces=("Paris.\n",)))("run", "m", "Where?").stdout == "Paris.\n"


def test_an_empty_reply_is_an_empty_line(program, script):
    assert program(script(pieces=("",)))("run", "m", "Where?").stdout == "\n"


def test_reasoning_is_no_part_of_the_answer(program, script):
    result = program(script(reasoning="Hm.", pieces=("Paris.",)))("run", "m", "Where?")
    assert (result.stdout, result.stderr) == ("Paris.\n", "")


@pytest.mark.parametrize(
    ("arguments", "stdin", "prompt"),
    [
        (["Hi"], "", "Hi"),
        ([], "from a pipe\n", "from a pipe"),
        (["-"], "from a pipe\n", "from a pipe"),
        (["Sum this up:"], "a\nb\n", "Sum this up:\n\na\nb"),
        ([], "two ends\n\n", "two ends\n"),
    ],
)
def test_the_prompt_is_the_argument_and_what_is_piped_in(program, arguments, stdin, prompt):
    phyla = program()
    assert phyla("run", "m", *arguments, stdin=stdin).exit_code == 0
    assert phyla.engine.asked[0].messages == [("user", prompt)]


def test_an_empty_prompt_is_an_error_and_no_model_is_loaded(program):
    phyla = program()
    result = phyla("run", "m", stdin="\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: The prompt is empty.")
    assert phyla.choices == []


def test_no_prompt_at_a_terminal_is_wrong_usage(program, monkeypatch):
    from phyla.cli import prompt_input

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Sys:
        stdin = Terminal()

    monkeypatch.setattr(prompt_input, "sys", Sys)
    result = program()("run", "m")
    assert result.exit_code == 2
    assert "PROMPT" in result.stderr


def test_bytes_that_are_no_text_are_an_error(monkeypatch):
    from phyla.cli.prompt_input import read_prompt
    from phyla.errors import RequestError

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ok \xff"), encoding="utf-8"))
    with pytest.raises(RequestError, match="byte 0xff at position 3"):
        read_prompt(None)


def test_the_system_message_comes_first(program):
    phyla = program()
    phyla("run", "m", "Hi", "--system", "Be brief.")
    assert phyla.engine.asked[0].messages == [("system", "Be brief."), ("user", "Hi")]


@pytest.mark.parametrize(
    ("arguments", "thinking"),
    [
        ([], None),
        (["--think"], True),
        (["--no-think"], False),
        (["--thinking"], True),
        (["--no-thinking"], False),
        (["--effort", "low"], "low"),
        (["--think", "--effort", "low"], "low"),
    ],
)
def test_thinking_is_left_to_the_template_unless_it_is_asked_for(program, arguments, thinking):
    phyla = program()
    phyla("run", "m", "Hi", *arguments)
    assert phyla.engine.asked[0].thinking is thinking


def test_no_thinking_and_an_effort_exclude_each_other(program):
    phyla = program()
    assert phyla("run", "m", "Hi", "--no-think", "--effort", "low").exit_code == 2
    assert phyla.choices == []


def test_thinking_that_the_model_cannot_do_is_an_error_before_the_reply(program):
    phyla = program()
    phyla.engine.encode_error = RequestError("Reasoning cannot be turned on.")
    result = phyla("run", "m", "Hi", "--think")
    assert (result.exit_code, result.stderr) == (1, "error: Reasoning cannot be turned on.\n")
    assert phyla.engine.asked == []


def test_reasoning_goes_to_standard_error_if_it_is_asked_for(program, script):
    result = program(script(reasoning="Hm.", pieces=("Paris.",)))(
        "run", "m", "Where?", "--show-reasoning"
    )
    assert (result.stdout, result.stderr) == ("Paris.\n", "Hm.\n\n")


def test_options_that_are_given_reach_the_engine_and_no_others(program):
    phyla = program()
    arguments = [
        *("--max-tokens", "5", "--temperature", "0.5", "--top-p", "0.9", "--top-k", "20"),
        *("--min-p", "0.1", "--seed", "3", "--stop", "A", "--stop", "B"),
        *("--reasoning-budget", "9"),
    ]
    phyla("run", "m", "Hi", *arguments)
    phyla("run", "m", "Hi")
    first, second = phyla.engine.asked
    assert first.options == {
        "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "seed": 3,
        "stop": ("A", "B"), "reasoning_budget": 9,
    }  # fmt: skip
    assert second.options == {}


@pytest.mark.parametrize("command", [("run", "m", "Hi"), ("chat", "m")])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "-1"), ("--temperature", "nan"), ("--max-tokens", "0"),
        ("--top-p", "2"), ("--top-p", "0"), ("--stop", ""), ("--dtype", "float8"),
        ("--seed", "-1"), ("--reasoning-budget", "-1"),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_wrong_usage_and_no_model_is_opened(
    program, command, option, value
):
    phyla = program()
    result = phyla(*command, option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert phyla.choices == []


def test_how_to_open_the_model_reaches_the_loader(program):
    phyla = program()
    phyla(
        *("run", "owner/name", "Hi", "--family", "llama", "--revision", "main", "--offline"),
        *("--dtype", "float32", "--max-context", "64"),
    )
    choice = phyla.choices[0]
    assert (choice.source, choice.family, choice.revision) == ("owner/name", "llama", "main")
    assert (choice.offline, choice.dtype, choice.max_context) == (True, "float32", 64)


def test_raw_continues_plain_text(program):
    phyla = program()
    phyla("run", "m", "Once upon", "--raw")
    prompt = phyla.engine.asked[0].prompt
    assert prompt is not None
    assert prompt.text == "Once upon"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--system", "x"],
        ["--think"],
        ["--effort", "low"],
        ["--tools", "t.json"],
        ["--tool-choice", "none"],
    ],
)
def test_raw_refuses_what_needs_a_template(program, arguments):
    assert program()("run", "m", "Hi", "--raw", *arguments).exit_code == 2


def test_json_is_the_reply_in_one_line(program, script):
    result = program(script(pieces=("Par", "is.")))("run", "m", "Where?", "--json")
    reply = Reply.model_validate(json.loads(result.stdout))
    assert (reply.text, reply.seed) == ("Paris.", 42)
    assert result.stdout.count("\n") == 1


def test_stats_go_to_standard_error(program, script):
    result = program(script(pieces=("a", "b", "c")))("run", "m", "Hi", "--stats")
    assert result.stdout == "abc\n"
    assert "prompt 7 tokens, 14.0 tokens/s; reply 3 tokens, 8.0 tokens/s" in result.stderr


def test_stats_tell_how_many_tokens_were_reasoning(program, script):
    result = program(script(reasoning="Hmm"))("run", "m", "Hi", "--stats")
    assert "reply 2 tokens (3 of reasoning)," in result.stderr


def test_ctrl_c_keeps_what_came_and_exits_with_130(program, script):
    phyla = program(script(pieces=("Once", " upon", " a"), interrupts=1))
    result = phyla("run", "m", "Tell.")
    assert (result.exit_code, result.stdout) == (130, "Once\n")
    assert phyla.engine.closed


def test_ctrl_c_while_the_prompt_is_read_exits_with_130(program, script):
    result = program(script(pieces=(), interrupts=1))("run", "m", "Tell.")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_a_second_ctrl_c_does_not_wait(program, script):
    result = program(script(pieces=("Once", " upon"), interrupts=2))("run", "m", "Tell.")
    assert (result.exit_code, result.stdout) == (130, "Once")


def test_an_error_of_the_engine_is_one_line(program, script):
    error = TemplateError("The template\nrefused it.", hint="Leave it out.")
    result = program(script(error=error))("run", "m", "Hi")
    assert result.exit_code == 1
    assert result.stderr == "error: The template refused it. Leave it out.\n"
