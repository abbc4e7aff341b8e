"""The prompt cache from the outside: what is found again, what is kept, and who may see it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

import phyla
from phyla import Breakpoint, CacheLimits
from phyla.engine.answer import Answer
from phyla.engine.engine import Engine, load
from phyla.engine.radix import common_length
from phyla.prompt import Prompt
from phyla.testing import ScriptedEngine, prompt_ids, write_checkpoint
from phyla.testing.mixed import MIXED, mixed, mixed_registry
from phyla.testing.thorough import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

GREEDY: Mapping[str, Any] = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
REGISTRY = mixed_registry()
# In this order, because an ordinary run takes the first and the third.
KINDS = {"attention": "fm", "a window": "wfm", "everything": "rwfsm", "a recurrence": "rfm"}
SOME_KINDS = list(some(KINDS, count=len(KINDS), most=2))
SYSTEM = {"role": "system", "content": "You are a careful assistant. " * 12}

# Reasoning is shown since the last question only, as Qwen3's template has it.
STRIPPING = """
{%- set last = namespace(user=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- if tools -%}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.reasoning_content and loop.index0 > last.user -%}
<think>
{{ m.reasoning_content }}
</think>

{% endif -%}
{{ m.content }}
{%- for call in m.tool_calls or [] -%}
<tool_call>
{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""


@pytest.fixture(scope="module", params=SOME_KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "mixed"
    return write_checkpoint(path, mixed(KINDS[request.param]), registry=REGISTRY)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Iterator[Engine]:
    with opened(folder) as engine:
        yield engine


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    loaded.cache.clear()
    return loaded


def opened(folder: Path, **more: Any) -> Engine:
    return load(folder, registry=REGISTRY, dtype="float32", **more)


class Clock:
    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(engine.machine.loaded.pool, "clock", lambda: self.now)


# Conversations.


@pytest.mark.parametrize("kinds", SOME_KINDS)
def test_eight_turns_with_reasoning_and_tools_are_read_from_where_they_went_on(
    kinds: str, tmp_path: Path
) -> None:
    def look(place: str) -> str:
        """Look at a place."""
        return place

    with ScriptedEngine(
        tmp_path / "tiny", mixed(KINDS[kinds]), MIXED, chat_template=STRIPPING, special_marks=True
    ) as scripted:
        engine = scripted.engine
        messages: list[Any] = [SYSTEM]
        fed: list[tuple[int, ...]] = []
        for turn in range(8):
            messages.append({"role": "user", "content": f"Question number {turn}?"})
            steps = ["call", "answer"] if turn % 3 == 1 else ["answer"]
            for step in steps:
                thought = f"<think>\nthought of turn {turn}\n</think>\n\n"
                said = f"Answer {turn}."
                if step == "call":
                    said = (
                        '<tool_call>\n{"name": "look", "arguments": {"place": "x"}}\n</tool_call>'
                    )
                ids = engine.encode(messages, tools=[look]).ids
                stable = max((common_length(ids, other) for other in fed), default=0)
                reply = scripted.chat(thought + said, messages, tools=[look])
                assert reply.reasoning == f"thought of turn {turn}"
                if fed:
                    assert reply.usage.cached_tokens >= 0.95 * stable
                fed.append((*ids, *reply.tokens))
                messages.append(reply.message)
                if step == "call":
                    assert [call.name for call in reply.tool_calls] == ["look"]
                    messages.append(
                        {"role": "tool", "content": "seen", "tool_call_id": reply.tool_calls[0].id}
                    )


def test_a_conversation_that_goes_on_is_moved_and_not_copied(engine: Engine) -> None:
    messages: list[Any] = [SYSTEM]
    for turn in range(3):
        messages.append({"role": "user", "content": f"Question {turn}"})
        messages.append(engine.chat(messages, options=GREEDY).message)
        stats = engine.cache.stats()
        assert (stats.entries, stats.lent_entries) == (1, 0)


def test_two_requests_that_go_on_with_one_conversation_at_once_both_start_from_it(
    engine: Engine,
) -> None:
    messages: list[Any] = [SYSTEM, {"role": "user", "content": "Question"}]
    messages.append(engine.chat(messages, options=GREEDY).message)
    messages.append({"role": "user", "content": "And now?"})
    expected = engine.chat(messages, options=GREEDY, prompt_cache=False)
    streams = [engine.stream(messages, options=GREEDY) for _ in range(3)]
    for stream in streams:
        reply = stream.result()
        assert reply.tokens == expected.tokens
        assert reply.usage.cached_tokens > 300


def test_bug_2_a_long_system_prompt_is_read_once_for_all_questions(engine: Engine) -> None:
    shared = engine.encode([SYSTEM, {"role": "user", "content": "?"}]).ids.index(63)
    for question in ("What?", "Who is that?", "Where does it lead?"):
        messages = [SYSTEM, {"role": "user", "content": question}]
        reply = engine.chat(messages, options=GREEDY)
        if question != "What?":
            assert reply.usage.cached_tokens >= 0.95 * shared
        assert reply.tokens == engine.chat(messages, options=GREEDY, prompt_cache=False).tokens


# What is told about it.


def test_an_explanation_says_what_the_request_then_finds(engine: Engine) -> None:
    messages = [SYSTEM, {"role": "user", "content": "Question"}]
    assert engine.cache.explain(messages).limited_by == "empty"
    engine.chat(messages, options=GREEDY)
    for asked in (messages, [SYSTEM, {"role": "user", "content": "Another"}]):
        told = engine.cache.explain(asked)
        assert told.prompt_tokens == len(engine.encode(asked).ids)
        before = engine.cache.stats()
        assert engine.cache.explain(asked) == told
        assert engine.cache.stats() == before
        reply = engine.chat(asked, options=GREEDY)
        assert reply.usage.cached_tokens == told.cached_tokens
        assert told.limited_by in ("nothing", "divergence", "snapshot")


def test_a_cold_request_finds_and_leaves_nothing(engine: Engine) -> None:
    engine.chat([SYSTEM, {"role": "user", "content": "Question"}], options=GREEDY)
    before = engine.cache.stats()
    reply = engine.chat("Another", options=GREEDY, prompt_cache=False)
    assert reply.usage.cached_tokens == 0
    assert engine.cache.stats() == before


def test_namespaces_do_not_see_one_another(engine: Engine) -> None:
    messages = [SYSTEM, {"role": "user", "content": "Question"}]
    first = engine.chat(messages, options=GREEDY, namespace="a")
    other = engine.chat(messages, options=GREEDY, namespace="b")
    again = engine.chat(messages, options=GREEDY, namespace="a")
    assert first.usage.cached_tokens == other.usage.cached_tokens == 0
    assert again.usage.cached_tokens > 0
    assert first.tokens == other.tokens == again.tokens
    assert engine.cache.explain(messages, namespace="c").limited_by == "empty"


def test_what_is_shorter_than_the_minimum_is_not_kept(folder: Path) -> None:
    with opened(folder, cache=CacheLimits(min_tokens=100)) as engine:
        engine.generate(prompt_ids(90), options=GREEDY)
        assert engine.cache.stats().entries == 0


@pytest.mark.parametrize("limits", [CacheLimits(bytes=0), CacheLimits(entries=0)])
def test_a_cache_that_is_turned_off_keeps_nothing(folder: Path, limits: CacheLimits) -> None:
    with opened(folder, cache=limits) as engine:
        for _ in range(2):
            reply = engine.generate(prompt_ids(60), options=GREEDY)
            assert reply.usage.cached_tokens == 0
        assert engine.cache.stats().bytes == 0
        assert engine.cache.explain(Prompt(ids=tuple(prompt_ids(60)))).limited_by == "disabled"


def test_what_nobody_used_for_long_is_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder, cache=CacheLimits(idle_seconds=10)) as engine:
        clock = Clock(engine, monkeypatch)
        engine.generate(prompt_ids(60), options=GREEDY)
        clock.now += 9
        assert engine.generate(prompt_ids(60), options=GREEDY).usage.cached_tokens == 59
        clock.now += 11
        assert engine.generate(prompt_ids(60), options=GREEDY).usage.cached_tokens == 0


# Breakpoints and pins.


def test_breakpoints_keep_prefixes_until_their_time_is_over(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(engine, monkeypatch)
    messages = [
        SYSTEM,
        {"role": "user", "content": "First question"},
        {"role": "assistant", "content": "First answer"},
        {"role": "user", "content": "Second question"},
    ]
    places = [Breakpoint.after_system(ttl=100), Breakpoint.after_message(-2, ttl=50)]
    reply = engine.chat(messages, options=GREEDY, breakpoints=places)
    system = engine.encode([SYSTEM, {"role": "user", "content": "?"}]).ids.index(63)
    assert reply.usage.pinned_tokens > system
    for seed in range(5):
        engine.generate(prompt_ids(200, seed=seed), options=GREEDY)
    engine.machine.on_pool(lambda pool: pool.shrink_to(0))
    other = [*messages[:3], {"role": "user", "content": "Something else"}]
    found = engine.cache.explain(other)
    assert found.cached_tokens >= reply.usage.pinned_tokens
    clock.now += 60
    engine.machine.on_pool(lambda pool: pool.shrink_to(0))
    found = engine.cache.explain([SYSTEM, {"role": "user", "content": "Something else"}])
    assert system <= found.cached_tokens + 1
    assert found.cached_tokens < reply.usage.pinned_tokens
    clock.now += 60
    engine.machine.on_pool(lambda pool: pool.shrink_to(0))
    assert engine.cache.stats().entries == 0


@pytest.mark.parametrize("index", [4, -5, 100])
def test_a_breakpoint_after_no_message_is_refused(engine: Engine, index: int) -> None:
    with pytest.raises(phyla.RequestError, match="breakpoint"):
        engine.chat("hi", breakpoints=[Breakpoint.after_message(index)])


@pytest.mark.parametrize("wrong", ["x", Breakpoint.after_system(), [None], 3])
def test_what_is_no_list_of_breakpoints_is_refused(engine: Engine, wrong: Any) -> None:
    with pytest.raises(phyla.RequestError, match="breakpoints"):
        engine.chat("hi", breakpoints=wrong)


@pytest.mark.parametrize("wrong", [{"cache": {"entries": 3}}, {"cache": 3}, {"memory_limit": 1.5}])
def test_limits_of_another_type_are_refused(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(phyla.RequestError):
        opened(folder, **wrong)


def test_a_prompt_carries_its_breakpoints_itself(engine: Engine) -> None:
    prompt = engine.encode("hi", breakpoints=[Breakpoint.after_message(0)])
    assert prompt.pins
    with pytest.raises(phyla.RequestError, match="breakpoints"):
        engine.stream(prompt, breakpoints=[Breakpoint.after_system()])


def test_a_named_pin_is_computed_at_once_and_stays(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(engine, monkeypatch)
    kept = engine.cache.pin("system-a", [SYSTEM], ttl=100)
    engine.machine.on_pool(lambda pool: pool.shrink_to(0))
    messages = [SYSTEM, {"role": "user", "content": "Question"}]
    expected = engine.chat(messages, options=GREEDY, prompt_cache=False)
    for _ in range(2):
        reply = engine.chat(messages, options=GREEDY)
        assert reply.tokens == expected.tokens
        assert reply.usage.cached_tokens >= kept
        assert reply.usage.pinned_tokens == kept
        engine.machine.on_pool(lambda pool: pool.shrink_to(0))
    assert engine.cache.unpin("system-a")
    assert not engine.cache.unpin("system-a")
    clock.now += 1
    engine.machine.on_pool(lambda pool: pool.shrink_to(0))
    assert engine.cache.stats().entries == 0


def test_a_pin_of_the_same_name_takes_the_place_of_the_other(engine: Engine) -> None:
    engine.cache.pin("system", [SYSTEM], ttl=100)
    engine.cache.pin("system", [{"role": "system", "content": "Something else. " * 20}], ttl=100)
    assert engine.cache.stats().pinned_entries == 1


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan"), "60", True])
def test_a_pin_without_a_sound_time_is_refused(engine: Engine, ttl: Any) -> None:
    with pytest.raises(phyla.RequestError, match="ttl"):
        engine.cache.pin("x", [SYSTEM], ttl=ttl)
    assert engine.cache.stats().entries == 0


def test_the_pins_of_a_request_that_fails_are_dropped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Answer, sampled: Any) -> bool:
        raise ValueError("trouble")

    monkeypatch.setattr(Answer, "add", broken)
    with pytest.raises(ValueError, match="trouble"):
        engine.chat([SYSTEM, {"role": "user", "content": "?"}], breakpoints=[_after_system()])
    monkeypatch.undo()
    assert engine.cache.stats().pinned_entries == 0


def test_a_request_that_fails_leaves_the_pins_of_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = engine.cache.pin("system", [SYSTEM], ttl=1000)

    def broken(self: Answer, sampled: Any) -> bool:
        raise ValueError("trouble")

    messages = [SYSTEM, {"role": "user", "content": "?"}]
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Answer, "add", broken)
            with pytest.raises(ValueError, match="trouble"):
                engine.chat(messages)
    assert engine.chat(messages, options=GREEDY).usage.pinned_tokens == kept
    assert engine.cache.unpin("system")


def test_unpinning_is_for_one_namespace(engine: Engine) -> None:
    for namespace in ("a", "b"):
        engine.cache.pin("system", [SYSTEM], ttl=1000, namespace=namespace)
    assert engine.cache.unpin("system", namespace="a")
    assert not engine.cache.unpin("system", namespace="a")
    assert engine.cache.stats().pinned_entries == 1


@pytest.mark.parametrize(
    "wrong", [{"namespace": 5}, {"namespace": ["x"]}, {"name": ["x"]}, {"name": None}]
)
def test_a_pin_without_sound_names_is_refused(engine: Engine, wrong: dict[str, Any]) -> None:
    with pytest.raises(phyla.RequestError):
        engine.cache.pin(**{"name": "x", "messages": [SYSTEM], "ttl": 10, **wrong})
    assert engine.chat("hi", options=GREEDY).tokens


def test_no_namespace_reaches_into_another(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "vocab_size": 288, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0, 5.0, 7.0, 9.0],
            "original_max_position_embeddings": 64,
        },
    }  # fmt: skip
    folder = write_checkpoint(tmp_path / "tiny", config)
    ids = prompt_ids(50)
    with load(folder, dtype="float32") as engine:
        engine.generate(ids, options={**GREEDY, "max_tokens": 40}, namespace="a")
        for name in ("a\0long", "long/a", "a", "/a"):
            found = engine.generate(ids, options=GREEDY, namespace=name)
            assert found.usage.cached_tokens == 0


def test_an_attention_only_conversation_moves_though_its_opening_is_not_told_again(
    tmp_path: Path,
) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
    )
    folder = write_checkpoint(
        tmp_path / "tiny", mixed("fm"), chat_template=template, registry=REGISTRY
    )
    with opened(folder) as engine:
        messages: list[Any] = [SYSTEM]
        for turn in range(4):
            messages.append({"role": "user", "content": f"Question {turn}"})
            messages.append(engine.chat(messages, options=GREEDY).message)
            assert engine.cache.stats().entries == 1


def test_a_template_without_an_opening_leaves_something_to_start_from(tmp_path: Path) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}"
    folder = write_checkpoint(
        tmp_path / "tiny", mixed("rfm"), chat_template=template, registry=REGISTRY
    )
    with opened(folder) as engine:
        messages = [SYSTEM, {"role": "user", "content": "Question"}]
        pins = [Breakpoint.after_message(-1)]
        first = engine.chat(messages, options=GREEDY, breakpoints=pins)
        assert first.usage.pinned_tokens == first.usage.prompt_tokens
        assert engine.cache.explain(messages).cached_tokens == first.usage.prompt_tokens - 1


def _after_system() -> Breakpoint:
    return Breakpoint.after_system(ttl=1000)


def test_a_pin_that_leaves_no_room_is_told_with_numbers(folder: Path) -> None:
    with opened(folder) as engine:
        ids = prompt_ids(600)
        needed = engine.machine.loaded.runtime.nbytes(1200)
    with opened(folder, memory_limit=int(needed * 1.2)) as engine:
        system = [{"role": "system", "content": "x" * 600}]
        engine.cache.pin("big", system, ttl=1000)
        with pytest.raises(phyla.MemoryLimitError) as caught:
            engine.generate(ids[:500], options={**GREEDY, "max_tokens": 500})
        assert caught.value.held > 0
        assert engine.cache.unpin("big")
        prompt = Prompt(ids=tuple(ids[:500]))
        with engine.stream(prompt, options={**GREEDY, "max_tokens": 500}) as stream:
            assert next(stream)  # there is room for all that it may say


def test_a_pin_that_cannot_be_kept_is_refused_before_it_is_computed(folder: Path) -> None:
    def no_reading(*args: object) -> None:
        raise AssertionError("nothing is to be read")

    for limits in (CacheLimits(entries=0), CacheLimits(bytes=0), CacheLimits(min_tokens=5000)):
        with opened(folder, cache=limits) as engine:
            engine.machine.run = no_reading  # type: ignore[method-assign]
            with pytest.raises(phyla.RequestError):
                engine.cache.pin("a", [SYSTEM], ttl=60)


def test_a_pin_that_finds_no_slot_says_that_others_hold_them(folder: Path) -> None:
    with opened(folder, cache=CacheLimits(entries=1)) as engine:
        engine.cache.pin("a", [SYSTEM], ttl=60)
        with pytest.raises(phyla.RequestError, match="1 other pins hold"):
            engine.cache.pin("b", [{**SYSTEM, "content": SYSTEM["content"][::-1]}], ttl=60)
        engine.cache.unpin("a")
        assert engine.cache.pin("b", [{**SYSTEM, "content": SYSTEM["content"][::-1]}], ttl=60) > 0


def test_bug_42_a_clock_that_stands_still_keeps_a_dated_prompt_in_the_cache(
    tmp_path: Path,
) -> None:
    template = "{{ strftime_now('%Y-%m-%d') }}" + "{{ messages[0].content }}"
    folder = write_checkpoint(
        tmp_path / "dated", mixed("fm"), chat_template=template, registry=REGISTRY
    )
    day = datetime(2026, 1, 2, tzinfo=timezone.utc)
    with opened(folder, clock=lambda: day) as engine:
        engine.chat("the same question as before", options=GREEDY)
        assert engine.chat("the same question as before", options=GREEDY).usage.cached_tokens > 16


def test_a_prefix_is_not_reused_by_a_sequence_that_rotates_by_other_factors(
    tmp_path: Path,
) -> None:
    config = {
        "model_type": "llama", "vocab_size": 288, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0, 5.0, 7.0, 9.0],
            "original_max_position_embeddings": 64,
        },
    }  # fmt: skip
    folder = write_checkpoint(tmp_path / "tiny", config)
    ids = prompt_ids(50)
    short, long = {**GREEDY, "max_tokens": 4}, {**GREEDY, "max_tokens": 40}
    with load(folder, dtype="float32") as engine:
        expected = engine.generate(ids, options=long, prompt_cache=False)
        engine.generate(ids, options=short)
        found = engine.generate(ids, options=long)
        assert found.usage.cached_tokens == 0
        assert found.tokens == expected.tokens
        assert engine.generate(ids, options=long).usage.cached_tokens == 49
        assert engine.generate(ids, options=short).usage.cached_tokens == 49
