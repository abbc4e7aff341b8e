"""A session of turns holds what the checkpoint's template writes."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.engine.session.agreement import assert_as_before
from tests.core.engine.session.sessions import GREEDY, LLAMA, held_up
from tests.core.engine.session.talking import END, THOUGHT, Talking, assistant, user

import phyla
from phyla.testing import ScriptedEngine, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut"])
def test_a_session_of_plain_turns_is_what_the_template_writes(talk: Talking, ended: bool) -> None:
    session = talk.session
    first = [{"role": "system", "content": "Be kind."}, user("Hi")]
    assert session.append_chat(first) == len(talk.scripted.engine.encode(first).ids)
    assert talk.text == talk.template(first)
    messages: list[Any] = list(first)
    for turn in range(3):
        said = f" Reply {turn}: ä\n"
        count = len(talk.scripted.ids(said))
        if ended:
            reply = talk.says(said + END)
            assert reply.finish_reason == "stop"
        else:
            reply = talk.says(said + "which nobody will hear", max_tokens=count)
            assert reply.finish_reason == "length"
        messages += [assistant(said), user(f"Question {turn}?")]
        session.append_chat(messages[-1]["content"])
        assert talk.text == talk.template(messages)
        assert session.tokens == tuple(talk.scripted.engine.encode(messages).ids)


def test_the_other_end_of_turn_is_no_obstacle(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("Yes.<|endoftext|>")
    talk.session.append_chat("And?")
    whole = talk.template([user("Hi"), assistant("Yes."), user("And?")])
    assert talk.text.replace("<|endoftext|>", "") == whole


def test_a_reply_in_several_calls_is_one_turn(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("One, two, three." + END, max_tokens=5)
    talk.session.generate({"temperature": 0, "max_tokens": 4})
    assert talk.session.generate({"temperature": 0}).finish_reason == "stop"
    talk.session.append_chat([user("More"), user("please")])
    messages = [user("Hi"), assistant("One, two, three."), user("More"), user("please")]
    assert talk.text == talk.template(messages)


@pytest.mark.parametrize("thinks", [False, True])
def test_a_model_may_be_asked_to_go_on_after_its_end(talk: Talking, thinks: bool) -> None:
    talk.session.append_chat("Hi")
    said = THOUGHT if thinks else "The answer."
    talk.prepare(said + END + " More." + END)
    first = talk.session.generate({"temperature": 0})
    second = talk.session.generate({"temperature": 0})
    assert (first.text, second.text) == ("The answer.", " More.")
    assert (first.finish_reason, second.finish_reason) == ("stop", "stop")
    assert second.reasoning == ""


def test_results_of_tools_follow_the_calls(talk: Talking) -> None:
    tools = [{"name": "add", "description": "", "parameters": {"type": "object"}}]
    session = talk.session
    session.append_chat("2 + 3?", tools=tools)
    said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
    reply = talk.says(said + END)
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.tool_calls
    result = phyla.ToolResult(call_id=call.id, name="add", text="5")
    session.append_chat([phyla.Message(role="tool", content=(result,))], tools=tools)
    messages = [user("2 + 3?"), reply.message, phyla.Message(role="tool", content=(result,))]
    assert talk.text == talk.template(messages, tools=tools)
    reply = talk.says("It is 5." + END)
    assert reply.text == "It is 5."
    session.append_chat("Thanks.", tools=tools)
    assert talk.text == talk.template([*messages, assistant("It is 5."), user("Thanks.")],
                                      tools=tools)  # fmt: skip


def test_calls_are_looked_for_in_the_turn_that_offers_tools(talk: Talking) -> None:
    said = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    talk.session.append_chat("Hi")
    reply = talk.says(said + END)
    assert not reply.tool_calls
    talk.session.append_chat("Now?", tools=[{"name": "add", "parameters": {"type": "object"}}])
    assert [call.name for call in talk.says(said + END).tool_calls] == ["add"]


def test_a_turn_may_be_what_a_probe_looks_like(talk: Talking) -> None:
    from phyla.engine import encoder

    probe = next(v for k, v in vars(encoder).items() if isinstance(v, str) and k == "_REPLY")
    talk.session.append_chat(f"Say {probe}")
    talk.says(probe + END)
    talk.session.append_chat(f"Again: {probe}!")
    messages = [user(f"Say {probe}"), assistant(probe), user(f"Again: {probe}!")]
    assert talk.text == talk.template(messages)


def test_messages_wait_for_a_reply(talk: Talking) -> None:
    session = talk.session
    session.append_chat("Hi")
    before = session.tokens
    for _ in range(2):
        with pytest.raises(phyla.RequestError, match="reply") as caught:
            session.append_chat("Hello?")
        assert caught.value.field == "messages"
        assert_as_before(session, len(before), before)
    with held_up(talk.scripted.engine):
        stream = session.stream(GREEDY)
        stream.cancel()
    assert stream.result().tokens == ()
    with pytest.raises(phyla.RequestError, match="reply"):  # nothing was said
        session.append_chat("Hello?")
    talk.says("Oh." + END)
    session.append_chat("Hello?")
    assert talk.text == talk.template([user("Hi"), assistant("Oh."), user("Hello?")])


def test_a_template_that_hides_replies_is_refused(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    folder = write_checkpoint(tmp_path / "hides", LLAMA, chat_template=template)
    with phyla.load(folder) as engine, engine.session() as session:
        session.append_chat("Hi")
        session.generate(GREEDY)
        before = session.tokens
        with pytest.raises(phyla.TemplateError, match="does not show"):
            session.append_chat("More")
        assert_as_before(session, 10, before)


def test_the_published_templates_go_on_with_plain_turns(tmp_path: Path, pytestconfig: Any) -> None:
    folder = pytestconfig.rootpath.parent / "shared" / "templates"
    template = folder / "qwen3-instruct-2507.jinja"
    if not template.exists():
        pytest.skip("the collection of templates is not here")
    family = importlib.import_module("phyla_families.llama.plugin").LLAMA
    dialect = importlib.import_module("phyla_families.qwen3.dialect").dialect
    with ScriptedEngine(
        tmp_path / "tiny", {**LLAMA, "max_position_embeddings": 4096},
        replace(family, dialect=dialect), chat_template=template.read_text(),
    ) as made:  # fmt: skip
        talk = Talking(made)
        tools = [{"name": "add", "parameters": {"type": "object"}}]
        talk.session.append_chat("2 + 3?", tools=tools)
        said = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
        call = talk.says(said + END).message
        result = {"role": "tool", "content": "5"}
        talk.session.append_chat([result], tools=tools)
        talk.says("It is 5." + END)
        talk.session.append_chat("Thanks.", tools=tools)
        messages = [user("2 + 3?"), call, result, assistant("It is 5."), user("Thanks.")]
        assert talk.text == talk.template(messages, tools=tools)


def test_a_reset_session_begins_a_conversation(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("Yes." + END)
    talk.session.reset()
    talk.session.append_chat("Ho")
    assert talk.text == talk.template([user("Ho")])


def test_a_fork_of_a_conversation_holds_the_conversation(talk: Talking) -> None:
    talk.session.append_chat("Hi")
    talk.says("Yes." + END)
    fork = Talking.__new__(Talking)
    fork.scripted, fork.session = talk.scripted, talk.session.fork()
    fork.session.append_chat("And?")
    talk.session.append_chat("Or?")
    assert fork.text == fork.template([user("Hi"), assistant("Yes."), user("And?")])
    assert talk.text == talk.template([user("Hi"), assistant("Yes."), user("Or?")])
    fork.session.close()
