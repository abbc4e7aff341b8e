"""The commands with a real engine: a tiny Llama with random weights."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from phyla.benchmark import Sample, random_ids
from phyla.cli.app import make_app
from phyla.cli.shell import Shell, open_engine
from phyla.events import Reply
from phyla.hooks import hookimpl
from phyla.inspect import CacheReport, Report
from phyla.messages import Reasoning, Text, ToolCall, ToolResult, read_messages
from phyla.registry import make_registry
from phyla.testing.tokenizer import token_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx
    from typer.testing import Result


def test_run_gives_the_same_reply_for_the_same_seed(phyla, tiny):
    arguments = ("run", str(tiny), "Hi", "--max-tokens", "8", "--seed", "7", "--json")
    first, second = (Reply.model_validate(json.loads(phyla(*arguments).stdout)) for _ in range(2))
    assert first.tokens == second.tokens
    assert (first.usage.completion_tokens, first.finish_reason) == (8, "length")


def test_raw_reads_the_prompt_without_the_template(phyla, tiny):
    lengths = [
        json.loads(phyla("run", str(tiny), "abc", "--max-tokens", "1", "--json", *more).stdout)
        for more in ([], ["--raw"])
    ]
    assert lengths[1]["usage"]["prompt_tokens"] == 3
    assert lengths[0]["usage"]["prompt_tokens"] > 3


def test_chat_goes_on_after_a_message_that_is_too_long(phyla, tiny):
    result = phyla(
        *("chat", str(tiny), "--max-context", "64", "--max-tokens", "2", "--temperature", "0"),
        stdin=f"Hi\n{'x' * 100}\n/reset\nHi\n",
    )
    assert (result.exit_code, result.stdout.count("\n") >= 2) == (1, True)
    assert "error: The prompt has" in result.stderr


def test_inspect_tells_what_the_model_is(phyla, tiny):
    result = phyla("inspect", str(tiny), "--json", "--dtype", "float32")
    report = Report.model_validate_json(result.stdout)
    assert (report.name, report.family, report.format) == ("tiny-llama", "llama", "safetensors")
    assert report.distribution.startswith("phyla ")
    assert report.architectures == ("LlamaForCausalLM",)
    assert (report.layers, report.context, report.vocab_size) == (2, 512, 264)
    assert report.parameters == sum(share.parameters for share in report.weights)
    assert report.parameters == 264 * 64 * 2 + 2 * (64 * (64 + 32 + 32 + 64 + 96 * 3) + 128) + 64
    assert report.weights[0].storage == "4-bit affine, groups of 32"
    assert report.precision.reason == "float32 throughout, as requested."
    assert report.cache.bytes_per_token == 2 * 2 * (16 + 16) * 4
    assert report.cache.fixed_bytes == 0
    assert (258, "<|im_end|>") in [(token.id, token.text) for token in report.eos]
    assert report.sampling.temperature == 0.3
    template = report.template
    assert template is not None
    assert (template.system, template.tools, template.tool_calls) == ("yes", False, False)
    assert (report.dialect, report.tool_format, report.tool_opens) == ("llama", None, ())


def test_inspect_prints_the_same_for_people(phyla, tiny):
    lines = phyla("inspect", str(tiny)).stdout.splitlines()
    fields = {line[:14].strip(): line[14:].strip() for line in lines if line[:14].strip()}
    assert fields["family"].startswith("llama (phyla ")
    assert "258 <|im_end|>" in "".join(lines)
    assert fields["context"] == "512 tokens"
    assert fields["recommended"] == "temperature 0.3"


@pytest.mark.parametrize("change", [{"num_hidden_layers": 9}, {"intermediate_size": 40}])
def test_inspect_finds_that_weights_and_config_do_not_fit(phyla, tiny, tmp_path, change):
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tiny / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    result = phyla("inspect", str(tmp_path))
    assert result.exit_code == 1
    assert "layers." in result.stderr


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        (("config.json",), ("weights (*.safetensors)", "tokenizer.json")),
        (("config.json", "tokenizer.json", "tokenizer_config.json"), ("weights (*.safetensors)",)),
        (("config.json", "model.safetensors"), ("tokenizer.json",)),
    ],
)
def test_inspect_describes_what_there_is_of_a_model_and_says_what_is_missing(
    phyla, tiny, tmp_path, kept, missing
):
    for name in kept:
        (tmp_path / name).symlink_to(tiny / name)
    whole = Report.model_validate_json(phyla("inspect", str(tiny), "--json").stdout)
    report = Report.model_validate_json(phyla("inspect", str(tmp_path), "--json").stdout)
    assert (report.missing, whole.missing) == (missing, ())
    assert (report.family, report.architectures) == (whole.family, whole.architectures)
    assert (report.parameters, report.layers) == (whole.parameters, whole.layers)
    assert (report.vocab_size, report.context) == (whole.vocab_size, whole.context)
    assert report.cache == whole.cache
    held = "model.safetensors" in kept
    assert (report.size_bytes, report.weights) == (
        (whole.size_bytes, whole.weights) if held else (0, ())
    )
    texts = {token.text for token in report.eos}
    assert texts == ({"<|endoftext|>", "<|im_end|>"} if "tokenizer.json" in kept else {None})
    told = phyla("inspect", str(tmp_path))
    assert told.exit_code == 0
    assert f"missing       {' and '.join(missing)}\n" in told.stdout
    assert "outside the vocabulary" not in told.stdout


def test_only_inspect_opens_a_model_without_weights(phyla, tiny, tmp_path):
    (tmp_path / "config.json").symlink_to(tiny / "config.json")
    for command in (("run", str(tmp_path), "Hi"), ("pull", str(tmp_path))):
        result = phyla(*command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "no *.safetensors file" in result.stderr


def test_inspect_says_of_weights_in_another_format_that_they_are_there(phyla, tiny, tmp_path):
    (tmp_path / "config.json").symlink_to(tiny / "config.json")
    (tmp_path / "pytorch_model.bin").write_bytes(b"weights")
    assert "another format only: pytorch_model.bin" in phyla("inspect", str(tmp_path)).stderr


def test_inspect_shows_what_a_token_costs_with_quantized_keys_and_values(phyla, tiny):
    def cache(*options: str) -> CacheReport:
        result = phyla("inspect", str(tiny), "--json", "--dtype", "float32", *options)
        return Report.model_validate_json(result.stdout).cache

    plain, both, mixed = cache(), cache("--kv-bits", "8"), cache("--kv-bits", "8,4")
    # Two layers of two heads of 16, filled up to a group of 64 that has a scale and a bias.
    assert plain.bytes_per_token == 2 * 2 * (16 + 16) * 4
    assert both.bytes_per_token == 2 * 2 * (64 + 64 + 2 * 8)
    assert mixed.bytes_per_token == 2 * 2 * (64 + 32 + 2 * 8)
    assert [each.quantized for each in (plain, both, mixed)] == [
        None, "8-bit keys, 8-bit values", "8-bit keys, 4-bit values",
    ]  # fmt: skip
    told = phyla("inspect", str(tiny), "--kv-bits", "8,4").stdout
    assert " a token, with 8-bit keys, 4-bit values\n" in told


def test_inspect_refuses_bits_that_there_are_not_and_bits_beside_media(phyla, tiny, tmp_path):
    assert "--kv-bits" in phyla("inspect", str(tiny), "--kv-bits", "7").stderr
    result = phyla("inspect", str(tiny), "--kv-bits", "8", "--image", str(tmp_path / "a.png"))
    assert (result.exit_code, "--kv-bits" in result.stderr) == (2, True)


def test_inspect_writes_out_what_would_steer_a_terminal(phyla, tiny, tmp_path):
    for file in tiny.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tiny / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    config["architectures"] = ["Evil\x1b]0;title\x07"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = phyla("inspect", str(tmp_path)).stdout
    assert "\x1b" not in told
    assert "Evil\\x1b]0;title\\x07" in told


def test_inspect_reads_no_weights(phyla, tiny, monkeypatch):
    import mlx.core as mx

    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(mx, "load", load)
    assert phyla("inspect", str(tiny)).exit_code == 0


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages[-1].content }}", ("dropped", False, False)),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}"
            "{{ tools | tojson }}{% for m in messages %}{{ m | tojson }}{% endfor %}",
            ("refused", True, True),
        ),
        ("{{ nothing", ("invalid",)),
    ],
)
def test_inspect_finds_out_what_a_template_can_do(phyla, tiny, tmp_path, template, expected):
    for file in tiny.iterdir():
        (tmp_path / file.name).symlink_to(file)
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    report = Report.model_validate_json(phyla("inspect", str(tmp_path), "--json").stdout)
    if expected == ("invalid",):
        assert report.template is None
        assert "not valid Jinja" in str(report.template_error)
        return
    found = report.template
    assert found is not None
    assert (found.system, found.tools, found.tool_calls) == expected


@pytest.fixture
def caller(tmp_path):
    """A program, and a tiny Qwen3 in it whose words are given: it thinks, calls a tool and ends."""
    import mlx.core as mx

    import phyla_families.qwen3.plugin as qwen3
    from phyla.testing import write_checkpoint

    template = (
        "{% for tool in tools or [] %}<tool_call>{{ tool | tojson }}{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content }}{{ m.content }}"
        "{{ m.tool_calls }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
    )
    config = {
        "model_type": "qwen3", "vocab_size": 264, "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }  # fmt: skip
    folder = write_checkpoint(tmp_path / "tiny-qwen3", config, chat_template=template)
    ids = [
        *(token_id("<think>"), *b"Hm.", token_id("</think>"), *b"So:", token_id("<tool_call>")),
        *b'{"name": "clock", "arguments": {"zone": "UTC"}}',
        *(token_id("</tool_call>"), token_id("<|im_end|>")),
    ]

    def say(tokens: Sequence[int], logits: mx.array) -> mx.array:
        return mx.where(mx.arange(logits.shape[-1]) == ids[len(tokens)], 0.0, -mx.inf)

    module = types.ModuleType("script")
    module.phyla_logits_processors = hookimpl(lambda request: [say])  # pyright: ignore[reportAttributeAccessIssue]
    shell = Shell(registry=make_registry(modules=[qwen3, module]), open_engine=open_engine)
    (tmp_path / "tools.json").write_text('[{"name": "clock"}]')

    def run(command: str, *arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(
            make_app(shell), [command, str(folder), *arguments], input=stdin, obj=shell
        )

    return run


def test_a_call_of_a_real_engine_is_in_the_json_and_on_standard_error(caller, tmp_path):
    arguments = ("Hi", "--tools", str(tmp_path / "tools.json"), "--think")
    reply = Reply.model_validate_json(caller("run", *arguments, "--json").stdout)
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("Hm.", "So:", "tool_calls")
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("clock", {"zone": "UTC"})
    ]
    assert reply.usage.reasoning_tokens == 3
    result = caller("run", *arguments)
    assert (result.exit_code, result.stdout) == (0, "So:\n")
    assert result.stderr == 'tool call: clock\n  zone: "UTC"\n'


def test_an_effort_that_a_real_model_does_not_know_is_an_error(caller):
    result = caller("run", "Hi", "--effort", "high")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no reasoning effort 'high'" in result.stderr


def test_a_chat_with_a_real_engine_takes_a_result_and_saves_all(caller, tmp_path):
    file = tmp_path / "talk.json"
    result = caller(
        *("chat", "--tools", str(tmp_path / "tools.json")), stdin=f"Hi\nnoon\n\n/save {file}\n"
    )
    assert result.stdout == "So:\nSo:\n"
    saved = read_messages(json.loads(file.read_text()))
    assert [message.role for message in saved] == ["user", "assistant", "tool", "assistant"]
    thought, text, call = saved[1].blocks
    assert (thought, text) == (Reasoning(text="Hm."), Text(text="So:"))
    assert isinstance(call, ToolCall)
    assert call.raw.startswith("<tool_call>{")
    assert saved[2].blocks == (ToolResult(call_id=call.id, name="clock", text="noon"),)


def test_inspect_shows_how_a_model_marks_what_it_says(caller):
    lines = caller("inspect").stdout.splitlines()
    assert "dialect       qwen3-hermes" in lines
    assert "reasoning     <think> ... </think>" in lines
    assert "tool calls    hermes: <tool_call> ... </tool_call>" in lines
    assert "thinking      True, False" in lines


def test_bench_reports_a_rate_per_size(phyla, tiny):
    result = phyla(
        *("bench", str(tiny), "--prompt-sizes", "4,16", "--decode", "3", "--runs", "2", "--json")
    )
    report = json.loads(result.stdout)
    assert list(report["prefill"]) == ["4", "16"]
    for rate in (*report["prefill"].values(), report["decode"]):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert rate["runs"] == 2
    assert report["load_seconds"] > 0
    assert report["peak_bytes"] > 2**20


def test_bench_prints_a_table_of_the_sizes_that_fit(phyla, tiny):
    lines = phyla("bench", str(tiny), "--decode", "2", "--runs", "1").stdout.splitlines()
    assert lines[1].startswith("prefill, 32 tokens")
    assert lines[2].startswith("decode, 2 tokens")
    assert "peak memory" in lines[-1]


def test_bench_refuses_sizes_that_do_not_fit_before_it_measures(phyla, tiny):
    result = phyla("bench", str(tiny), "--prompt-sizes", "8,600")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: The prompt has 601 tokens")


@pytest.mark.parametrize("sizes", ["", "0", "8,x", "-3"])
def test_bench_refuses_sizes_that_are_none(phyla, tiny, sizes):
    assert phyla("bench", str(tiny), "--prompt-sizes", sizes).exit_code == 2


def test_pull_prints_where_the_model_lies(phyla, tiny):
    assert Path(phyla("pull", str(tiny)).stdout.strip()) == tiny


def test_families_lists_the_bundled_ones(phyla):
    result = phyla("families")
    assert "Unusable" not in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["family", "model", "types", "from", "version"]
    assert {row[0] for row in rows[1:]} >= {"llama", "qwen3", "minicpm"}


def test_families_as_json_hold_the_same(phyla):
    listing = json.loads(phyla("families", "--json").stdout)
    assert {row["name"] for row in listing["families"]} >= {"llama", "qwen3", "minicpm"}
    assert all("modalities" not in row for row in listing["families"])
    assert listing["broken"] == []


def test_random_prompts_repeat_by_seed_and_stay_in_the_vocabulary():
    ids = random_ids(100, vocab_size=7, seed=1)
    assert ids == random_ids(100, vocab_size=7, seed=1)
    assert ids != random_ids(100, vocab_size=7, seed=2)
    assert set(ids) <= set(range(7))


def test_a_sample_has_a_median_and_ends():
    sample = Sample.of([3.0, 1.0, 2.0])
    assert (sample.low, sample.median, sample.high) == (1.0, 2.0, 3.0)
