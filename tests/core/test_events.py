"""A reply as a message of the conversation that it belongs to."""

from __future__ import annotations

from phyla.events import Reply, Timings, ToolCallError, Usage
from phyla.messages import Message, Reasoning, Text, ToolCall

REPLY = Reply(text="Yes.", finish_reason="stop", usage=Usage(), timings=Timings(), seed=1)


def test_plain_text_stays_plain():
    assert REPLY.message == Message(role="assistant", content="Yes.")


def test_reasoning_and_calls_become_blocks_and_broken_calls_do_not():
    call = ToolCall(id="c0", name="clock", raw="<call>clock</call>")
    broken = ToolCallError(raw="<call>", reason="cut off", incomplete=True)
    reply = REPLY.model_copy(
        update={"reasoning": "Hm.", "tool_calls": (call,), "tool_call_errors": (broken,)}
    )
    assert reply.message.blocks == (Reasoning(text="Hm."), Text(text="Yes."), call)
    assert reply.model_copy(update={"text": ""}).message.blocks == (Reasoning(text="Hm."), call)


def test_the_message_is_no_field_of_the_reply():
    assert "message" not in REPLY.model_dump()
