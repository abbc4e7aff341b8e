"""LFM2's tool calls: the fact sheet's examples, between the real markers."""

from __future__ import annotations

import pytest

from phyla.messages import Tool
from phyla.testing.blocks import assert_same_in_pieces, read_block
from phyla_families.lfm2_vl.format import BARE_TOOL_CALLS, TOOL_CALLS

START, END = "<|tool_call_start|>", "<|tool_call_end|>"
EXAMPLES = [
    ('[w(city="Paris", days=3)]', [("w", {"city": "Paris", "days": 3})]),
    (
        '[p(s=[{"c": "Oslo", "n": null}], o={"flex": true})]',
        [("p", {"s": [{"c": "Oslo", "n": None}], "o": {"flex": True}})],
    ),
    (
        "[w(path='a.py', content='print(\"hi, you\")\\nx = [1, 2]')]",
        [("w", {"path": "a.py", "content": 'print("hi, you")\nx = [1, 2]'})],
    ),
    ("[run(cmd='cat > f <<EOF\nline ]\nEOF')]", [("run", {"cmd": "cat > f <<EOF\nline ]\nEOF"})]),
    (
        "[f(a=True, b=None, c=-0.5, d=(800, 600))]",
        [("f", {"a": True, "b": None, "c": -0.5, "d": [800, 600]})],
    ),
    ("[a(x=1), b(y='two')]", [("a", {"x": 1}), ("b", {"y": "two"})]),
    ("[c()]", [("c", {})]),
    ("[mem(from=1)]", [("mem", {"from": 1})]),
    ('[fs.list(path="/")]', [("fs.list", {"path": "/"})]),
    ("[note(text='it's here, ok')]", [("note", {"text": "it's here, ok"})]),
    ('[{"name": "w", "arguments": {"c": "Paris"}}]', [("w", {"c": "Paris"})]),
    ('[{"name": "w", "parameters": {"c": 1}, "id": "0"}]', [("w", {"c": 1})]),
    ("[f(**{'q': 'x'})]", [("f", {"q": "x"})]),
    (f"[echo(s='{END}')]", [("echo", {"s": END})]),
    ("[f(a={1, 2})]", [("f", {"a": [1, 2]})]),
]


@pytest.mark.parametrize(("text", "calls"), EXAMPLES)
def test_calls_are_read_alike_in_all_pieces(text, calls):
    found = assert_same_in_pieces(TOOL_CALLS, f"{START}{text}{END}")
    assert found.calls == calls
    assert not found.errors
    assert found.rest == ""


@pytest.mark.parametrize("text", ["[f(\"Paris\", unit='c')]", "[f(x=1e999)]"])
def test_bug_28_what_json_cannot_say_is_an_error(text):
    found = assert_same_in_pieces(TOOL_CALLS, f"{START}{text}{END}")
    assert [error.incomplete for error in found.errors] == [False]
    assert not found.calls


def test_a_call_that_is_cut_off_is_never_guessed():
    found = assert_same_in_pieces(TOOL_CALLS, f'{START}[w(city="Par')
    assert [error.incomplete for error in found.errors] == [True]


def test_a_second_block_is_left_to_be_read_next():
    found = read_block(TOOL_CALLS, [f"{START}[a()]{END}{START}[b()]{END}"])
    assert found.calls == [("a", {})]
    assert read_block(TOOL_CALLS, [found.rest]).calls == [("b", {})]


def test_a_list_without_markers_is_read_if_it_names_a_tool():
    tools = [Tool(name="w")]
    assert read_block(BARE_TOOL_CALLS, ['[w(city="Paris")]'], tools).calls == [
        ("w", {"city": "Paris"})
    ]
    assert read_block(BARE_TOOL_CALLS, ["[see below]"], tools).errors[0].prose


def test_what_a_template_writes_is_read():
    # lfm2.5-8b-a1b.jinja puts strings in single quotes and escapes nothing.
    found = read_block(TOOL_CALLS, [f"{START}[f(a='C:\\', b='x\ny')]{END}"])
    assert found.calls == [("f", {"a": "C:\\", "b": "x\ny"})]
