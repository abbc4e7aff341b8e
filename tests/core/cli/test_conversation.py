"""A conversation in memory and in a file."""

from __future__ import annotations

import json

import pytest

from phyla.cli.conversation import Conversation
from phyla.errors import RequestError
from phyla.messages import Message, Reasoning, Text, ToolCall, ToolResult

CALL = ToolCall(id="c1", name="weather", arguments={"city": "Zürich", "days": None})
SAID = CALL.model_copy(update={"raw": "<tool_call>...</tool_call>", "notes": ("repaired",)})


def test_asking_does_not_change_the_conversation():
    conversation = Conversation("Be kind.")
    asking = conversation.asking(Message(role="user", content="Hi"))
    assert [message.role for message in asking] == ["system", "user"]
    assert [message.role for message in conversation.messages] == ["system"]


@pytest.mark.parametrize(
    "messages",
    [
        [Message(role="user", content="Hi"), Message(role="assistant", content="")],
        [Message(role="assistant", content=(Reasoning(text="Hm."), Text(text="Yes."), CALL))],
        [Message(role="assistant", content=(Reasoning(text="Hm."), Text(text="Yes."), SAID))],
        [Message(role="assistant", content=(Text(text="a"), Reasoning(text="b"), Text(text="c")))],
        [Message(role="tool", content=(ToolResult(call_id="c1", name="weather", text="21"),))],
        [Message(role="user", content="Hi", name="Ada")],
    ],
)
def test_what_is_saved_is_what_is_loaded(messages, tmp_path):
    conversation, again = Conversation("Be kind."), Conversation("Be rude.")
    conversation.add(*messages)
    conversation.save(tmp_path / "talk.json")
    again.load(tmp_path / "talk.json")
    assert again.messages == conversation.messages


def test_calls_and_results_are_saved_in_the_openai_form_where_that_keeps_all(tmp_path):
    conversation = Conversation()
    result = {"role": "tool", "content": "21", "tool_call_id": "c1", "name": "weather"}
    conversation.add(Message(role="assistant", content=(CALL,)), Message.model_validate(result))
    conversation.save(tmp_path / "talk.json")
    call, answer = json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))
    function = call["tool_calls"][0]["function"]
    assert (call["content"], function["name"]) == ("", "weather")
    assert json.loads(function["arguments"]) == CALL.arguments
    assert answer == result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", r"should hold a JSON list of messages, found an object\. Put it in brackets"),
        ("[", "is no JSON: .* at line 1"),
        ("[]", "The conversation is empty"),
    ],
)
def test_a_file_that_holds_no_conversation_is_an_error(text, said, tmp_path):
    (tmp_path / "talk.json").write_text(text)
    with pytest.raises(RequestError, match=said):
        Conversation().load(tmp_path / "talk.json")
