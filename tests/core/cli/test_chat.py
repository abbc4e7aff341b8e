"""`phyla chat` with lines piped in and a fake engine."""

from __future__ import annotations

import json

from phyla.cli.wording import for_shell
from phyla.errors import ContextOverflowError
from phyla.messages import Reasoning, read_messages


def test_each_line_is_a_message_and_each_reply_a_line(program, script):
    phyla = program(script(pieces=("One.",)), script(pieces=("Two.",)))
    result = phyla("chat", "m", stdin="first\n\nsecond\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "One.\nTwo.\n", "")
    assert phyla.engine.closed


def test_the_history_goes_with_every_message(program, script):
    phyla = program(script(pieces=("One.",)))
    phyla("chat", "m", "--system", "Be brief.", stdin="first\nsecond\n")
    assert phyla.engine.asked[1].messages == [
        ("system", "Be brief."),
        ("user", "first"),
        ("assistant", "One."),
        ("user", "second"),
    ]


def test_the_history_keeps_reasoning_apart_from_the_answer(program, script):
    phyla = program(script(reasoning="Hm.", pieces=("One.",)))
    phyla("chat", "m", stdin="first\nsecond\n")
    answer = phyla.engine.asked[1].history[1]
    assert answer.text == "One."
    assert answer.blocks[0] == Reasoning(text="Hm.")


def test_reset_forgets_the_turns_and_keeps_the_system_message(program):
    phyla = program()
    phyla("chat", "m", "--system", "Be brief.", stdin="first\n/reset\nsecond\n")
    assert phyla.engine.asked[1].messages == [("system", "Be brief."), ("user", "second")]


def test_system_sets_and_removes_the_system_message(program):
    phyla = program()
    phyla("chat", "m", stdin="/system Be kind.\nHi\n/reset\n/system\nHi\n")
    first, second = phyla.engine.asked
    assert first.messages == [("system", "Be kind."), ("user", "Hi")]
    assert second.messages == [("user", "Hi")]


def test_save_writes_messages_that_can_be_sent_again(program, script, tmp_path):
    file = tmp_path / "talk.json"
    phyla = program(script(reasoning="Hm.", pieces=("Grüße.",)))
    phyla("chat", "m", "--system", "Be kind.", stdin=f"Hi\n/save {file}\n")
    text = file.read_text(encoding="utf-8")
    assert "Grüße" in text
    assert json.loads(text) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Grüße.", "reasoning_content": "Hm."},
    ]
    assert [message.text for message in read_messages(json.loads(text))] == [
        "Be kind.",
        "Hi",
        "Grüße.",
    ]


def test_save_says_why_it_cannot(program, tmp_path, keyboard):
    stdin = f"/save\n/save {tmp_path}\nHi\n"
    result = program()("chat", "m", stdin=stdin)
    _, first, second = result.stderr.splitlines()
    assert result.exit_code == 0
    assert first == "error: /save needs a file's name."
    assert second.startswith(f"error: {tmp_path} cannot be written: ")
    assert result.stdout == "Hello there\n"


def test_load_goes_on_with_a_saved_conversation(program, script, tmp_path):
    file = tmp_path / "talk.json"
    program(script(pieces=("One.",)))("chat", "m", "--system", "S", stdin=f"first\n/save {file}\n")
    phyla = program()
    result = phyla("chat", "m", stdin=f"other\n/load {file}\nsecond\n")
    assert "Loaded 3 messages" in result.stderr
    assert phyla.engine.asked[1].messages == [
        ("system", "S"),
        ("user", "first"),
        ("assistant", "One."),
        ("user", "second"),
    ]


def test_a_file_that_cannot_be_loaded_leaves_the_conversation_as_it_was(
    program, script, tmp_path, keyboard
):
    file = tmp_path / "talk.json"
    file.write_text('[{"role": "nobody"}]')
    phyla = program(script(pieces=("One.",)))
    result = phyla("chat", "m", stdin=f"first\n/load\n/load {tmp_path}\n/load {file}\nsecond\n")
    errors = result.stderr.splitlines()[1:]
    assert errors[0] == "error: /load needs a file's name."
    assert errors[1].startswith(f"error: {tmp_path} cannot be read: ")
    assert errors[2].startswith("error: messages[0].role ")
    assert len(phyla.engine.asked[1].messages) == 3


def test_exit_ends_it_and_help_lists_the_commands(program):
    phyla = program()
    result = phyla("chat", "m", stdin="/help\n/exit\nHi\n")
    assert (result.exit_code, phyla.engine.asked) == (0, [])
    for command in ("/reset", "/system", "/save", "/load", "/help", "/exit"):
        assert command in result.stderr


def test_an_unknown_command_is_an_error_and_two_slashes_are_text(program, keyboard):
    phyla = program()
    result = phyla("chat", "m", stdin="/etc/hosts\n//etc/hosts\n")
    assert "error: There is no command /etc/hosts. /help lists the commands.\n" in result.stderr
    assert phyla.engine.asked[0].messages == [("user", "/etc/hosts")]


def test_an_unknown_command_among_piped_lines_is_told_and_the_next_line_is_read(program):
    phyla = program()
    result = phyla("chat", "m", stdin="/etc/hosts\nHi\n")
    assert result.exit_code == 1
    assert result.stderr == "error: There is no command /etc/hosts. /help lists the commands.\n"
    assert phyla.engine.asked[0].messages == [("user", "Hi")]


def test_an_error_of_a_turn_is_a_line_an_exit_code_and_no_history(program, script):
    error = ContextOverflowError(limit=10, excess=3)
    phyla = program(script(pieces=("One.",)), script(error=error))
    result = phyla("chat", "m", stdin="first\nfar too long\nthird\n")
    assert result.exit_code == 1
    assert result.stderr == f"error: {for_shell(str(error))}\n"
    assert phyla.engine.asked[2].messages == [
        ("user", "first"),
        ("assistant", "One."),
        ("user", "third"),
    ]


def test_an_unexpected_error_of_a_turn_does_not_end_the_conversation(program, script):
    result = program(script(error=ValueError("odd")))("chat", "m", stdin="first\nsecond\n")
    assert result.stdout == "Hello there\n"
    assert result.stderr.startswith("error: unexpected ValueError: odd")


def test_ctrl_c_stops_the_reply_and_keeps_what_came_of_it(program, script):
    phyla = program(script(pieces=("Once", " upon"), interrupts=1))
    result = phyla("chat", "m", stdin="Tell.\nGo on.\n")
    assert (result.exit_code, result.stdout) == (0, "Once\nHello there\n")
    assert "(stopped)" in result.stderr
    assert phyla.engine.asked[1].messages == [
        ("user", "Tell."),
        ("assistant", "Once"),
        ("user", "Go on."),
    ]


def test_ctrl_c_before_the_answer_drops_the_message(program, script):
    phyla = program(script(pieces=(), interrupts=1), script(pieces=("",), interrupts=1))
    result = phyla("chat", "m", stdin="Tell.\nTell.\nHi.\n")
    assert (result.exit_code, len(phyla.engine.asked)) == (0, 3)
    assert phyla.engine.asked[2].messages == [("user", "Hi.")]


def test_ctrl_c_pressed_twice_drops_the_message_and_not_the_program(program, script):
    phyla = program(script(pieces=("Once", " upon"), interrupts=2))
    result = phyla("chat", "m", stdin="Tell.\nHi.\n")
    assert (result.exit_code, len(phyla.engine.asked)) == (0, 2)
    assert phyla.engine.asked[1].messages == [("user", "Hi.")]


def test_a_reply_that_was_cut_short_is_said_to_be(program, script):
    assert "cut short" not in program()("chat", "m", stdin="Hi.\n").stderr
