"""Tools on the command line: the file, the calls that are shown, and their results in a chat."""

from __future__ import annotations

import json

import pytest

from phyla.cli.ask import read_tools_file
from phyla.errors import RequestError
from phyla.events import Reply, ToolCallError
from phyla.messages import Reasoning, Text, ToolCall, ToolResult

PLAIN = {"name": "weather", "description": "Looks out of the window."}
OPENAI = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
WEATHER = ToolCall(id="c0", name="weather", arguments={"city": "Paris"}, raw="<call>weather</call>")
CLOCK = ToolCall(id="c1", name="clock")
BROKEN = ToolCallError(raw="<call>\nwea", reason="the name ends early")


@pytest.fixture
def tools(tmp_path):
    """A file with a plain tool and one in the OpenAI form."""
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([PLAIN, OPENAI]))
    return file


def test_a_file_may_hold_both_forms(tools):
    assert [tool.name for tool in read_tools_file(tools)] == ["weather", "clock"]
    assert read_tools_file(None) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"name": "a",}]', r"is no JSON: .* at line 1, column 1\d"),
        ('{"name": "a"}', r"should hold a JSON list of tools, found an object\. Put it in brack"),
        ("null", "found null"),
        ('[{"name": "a"}, "b"]', r"tools\[1\] should be an object, found 'b'"),
        ('[{"description": "a"}]', r"tools\[0\]\.name is missing"),
        ('[{"function": {"name": 3}}]', r"tools\[0\]\.name should be text; found 3"),
        ("\xff", "is no JSON in UTF-8"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it_and_the_place(text, said, tmp_path):
    file = tmp_path / "tools.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(RequestError, match=said) as failed:
        read_tools_file(file)
    assert str(file) in str(failed.value)


def test_a_missing_file_is_one_line_and_no_model_is_loaded(program):
    phyla = program()
    result = phyla("run", "m", "Hi", "--tools", "/no/such.json")
    assert result.exit_code == 1
    assert result.stderr == "error: /no/such.json cannot be read: No such file or directory.\n"
    assert phyla.choices == []


def test_tools_and_the_choice_reach_the_engine(program, tools):
    phyla = program()
    phyla("run", "m", "Hi", "--tools", str(tools), "--tool-choice", "clock")
    phyla("run", "m", "Hi")
    first, second = phyla.engine.asked
    assert (first.tools, first.tool_choice) == (["weather", "clock"], "clock")
    assert (second.tools, second.tool_choice) == (None, "auto")


def test_a_template_that_leaves_tools_out_is_told_of(program, tools):
    phyla = program()
    phyla.engine.shows_tools = False
    for choice in ("auto", "clock"):
        result = phyla("run", "m", "Hi", "--tools", str(tools), "--tool-choice", choice)
        assert (result.exit_code, result.stdout) == (0, "Hello there\n")
        assert "leaves tools out" in result.stderr
    phyla.engine.shows_tools = True
    assert phyla("run", "m", "Hi", "--tools", str(tools)).stderr == ""


def test_run_shows_calls_on_standard_error(program, script, tools):
    phyla = program(script(pieces=("Let me see.",), calls=(WEATHER, CLOCK)))
    result = phyla("run", "m", "Hi", "--tools", str(tools))
    assert (result.exit_code, result.stdout) == (0, "Let me see.\n")
    assert result.stderr == 'tool call: weather\n  city: "Paris"\ntool call: clock\n'


def test_a_reply_of_calls_alone_is_no_line(program, script, tools):
    phyla = program(script(pieces=("",), calls=(CLOCK,)))
    assert phyla("run", "m", "Hi", "--tools", str(tools)).stdout == ""


def test_run_shows_what_cannot_be_read_as_a_call(program, script, tools):
    cut = BROKEN.model_copy(update={"incomplete": True, "raw": "<call>\x1b"})
    phyla = program(script(pieces=("Hm.",), failures=(BROKEN, cut)))
    assert phyla("run", "m", "Hi", "--tools", str(tools)).stderr == (
        "tool call failed: the name ends early\n  <call>\n  wea\n"
        'tool call cut off: the name ends early\n  "<call>\\u001b"\n'
    )


def test_json_holds_reasoning_calls_and_errors(program, script, tools):
    phyla = program(script(reasoning="Hm.", calls=(WEATHER,), failures=(BROKEN,)))
    result = phyla("run", "m", "Hi", "--tools", str(tools), "--json")
    reply = Reply.model_validate_json(result.stdout)
    assert (reply.reasoning, reply.tool_calls, reply.tool_call_errors) == (
        "Hm.",
        (WEATHER,),
        (BROKEN,),
    )
    assert result.stderr == ""


def test_chat_sends_the_results_and_shows_the_answer(program, script, tools):
    phyla = program(
        script(reasoning="Hm.", pieces=("Let me see.",), calls=(WEATHER, CLOCK)),
        script(pieces=("Warm.",)),
    )
    result = phyla(
        "chat", "m", "--tools", str(tools), stdin="How is it?\n21 degrees\nnoon\nThanks\n"
    )
    assert result.stdout == "Let me see.\nWarm.\nHello there\n"
    _, called, first, second = phyla.engine.asked[1].history
    assert called.blocks == (Reasoning(text="Hm."), Text(text="Let me see."), WEATHER, CLOCK)
    assert first.blocks == (ToolResult(call_id="c0", name="weather", text="21 degrees"),)
    assert second.blocks == (ToolResult(call_id="c1", name="clock", text="noon"),)
    assert [role for role, _ in phyla.engine.asked[2].messages] == [
        "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip


def test_chat_goes_on_without_a_result_that_is_not_given(program, script, tools):
    phyla = program(script(pieces=("",), calls=(WEATHER, CLOCK)), script(calls=(WEATHER,)))
    phyla("chat", "m", "--tools", str(tools), stdin="Hi\n\nnoon\n\nBye\n")
    one_result, none, *others = phyla.engine.asked[1:]
    assert others == []
    assert [role for role, _ in one_result.messages] == ["user", "assistant", "tool"]
    assert one_result.history[2].blocks == (ToolResult(call_id="c1", name="clock", text="noon"),)
    assert none.messages[-1] == ("user", "Bye")
    assert [role for role, _ in none.messages[3:]] == ["assistant", "user"]


def test_the_end_of_the_input_gives_no_result(program, script, tools):
    phyla = program(script(calls=(WEATHER,)))
    assert phyla("chat", "m", "--tools", str(tools), stdin="Hi\n").exit_code == 0
    assert len(phyla.engine.asked) == 1


def test_results_that_were_not_answered_are_not_kept(program, script, tools):
    phyla = program(script(calls=(WEATHER,)), script(error=RequestError("No.")))
    result = phyla("chat", "m", "--tools", str(tools), stdin="Hi\n21\nAgain\n")
    assert result.stderr.endswith("error: No.\n")
    assert [role for role, _ in phyla.engine.asked[2].messages] == ["user", "assistant", "user"]


def test_a_call_is_required_once_and_not_after_its_result(program, script, tools):
    phyla = program(script(calls=(CLOCK,)), script(), script(calls=(CLOCK,)))
    phyla(
        *("chat", "m", "--tools", str(tools), "--tool-choice", "required"),
        stdin="Hi\nnoon\nAgain\n",
    )
    assert [asked.tool_choice for asked in phyla.engine.asked] == ["required", "auto", "required"]


def test_chat_says_at_once_that_the_model_cannot_be_asked_so(program):
    phyla = program()
    phyla.engine.encode_error = RequestError("There is no reasoning effort 'low'.")
    result = phyla("chat", "m", "--effort", "low", stdin="Hi\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: There is no reasoning effort 'low'.\n"
