"""What reading a reply costs, next to a decode step of the same model in the same process.

    python classifier.py MODEL [--dtype DTYPE] [--decode N] [--runs N]

Reading is what stands between a token id and an event: detokenizing, and splitting the text into
answer, reasoning and tool calls. The vocabulary is the model's; where it has no token for a marker,
the marker is looked for in the text, which is the slower way.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import phyla
from phyla.benchmark import DECODE_PROMPT, Sample, random_ids, time_decode
from phyla.engine.detokenize import Detokenizer
from phyla.engine.reply_reader import ReplyReader
from phyla.family import Dialect, ReasoningMarks
from phyla.tools.function_xml import FunctionXmlFormat
from phyla.tools.hermes import HermesFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phyla.engine.tokenizer import Tokenizer
    from phyla.tools import ToolFormat

PROSE = """\
The sky looks blue because air scatters short waves of light more than long ones. Sunlight holds
all colours; on its way through the air, blue is thrown to the side again and again, and reaches us
from everywhere. At sunset the way is longer: most of the blue is gone by then, and red is left.

1. *Rayleigh scattering* grows with the fourth power of the frequency, `1 / wavelength ** 4`.
2. Our eyes see violet worse than blue, and some of it never gets down here.

| colour | wavelength | scattered |
|--------|-----------:|----------:|
| blue   | 450 nm     | 4.4       |
| red    | 650 nm     | 1.0       |

"""
ARGUMENTS = PROSE.replace("\n", "\\n").replace('"', '\\"')
THOUGHT = f"<think>\n{PROSE}</think>\n\n{PROSE}"
HERMES_CALL = f"""\
<tool_call>
{{"name": "write_file", "arguments": {{"path": "sky.md", "content": "{ARGUMENTS}"}}}}
</tool_call>"""
XML_CALL = f"""\
<tool_call>
<function=write_file>
<parameter=path>
sky.md
</parameter>
<parameter=content>
{PROSE}</parameter>
</function>
</tool_call>"""


@dataclass(frozen=True)
class Case:
    """A reply and how it is read; costs are in seconds."""

    name: str
    dialect: Dialect
    ids: Sequence[int]
    offers_tools: bool
    reading: list[float]
    starting: list[float]
    detokenizing: list[float]

    def measure(self, tokenizer: Tokenizer) -> None:
        tools = (phyla.Tool(name="write_file"),) if self.offers_tools else None
        started = time.perf_counter()
        reader = ReplyReader(tokenizer, self.dialect, tools=tools, stops=("\nUser:",))
        began = time.perf_counter()
        for token in self.ids:
            reader.add(token)
        ended = time.perf_counter()
        reader.finish()
        if self.offers_tools and not reader.classifier.calls:
            raise AssertionError(f"{self.name}: the call was not found")
        self.starting.append(began - started)
        self.reading.append((ended - began) / len(self.ids))
        detokenizer = Detokenizer(tokenizer)
        began = time.perf_counter()
        for token in self.ids:
            detokenizer.add(token)
        self.detokenizing.append((time.perf_counter() - began) / len(self.ids))


def main() -> None:
    options = _options()
    with phyla.load(options.model, dtype=options.dtype) as engine:
        tokenizer = engine.tokenizer
        cases = _cases(tokenizer)
        steps: list[float] = []
        for run in range(options.runs + 1):
            for case in cases:
                case.measure(tokenizer)
            ids = random_ids(DECODE_PROMPT, vocab_size=tokenizer.vocab_size, seed=run)
            steps.append(1 / time_decode(engine, ids, options.decode).tokens_per_second)
    # The first round warms up.
    step = Sample.of(steps[1:])
    print(f"{'':44}  {'reading':>15}  {'detokenizing':>15}  {'share of':>8}  {'starting':>8}")
    print(f"{'':44}  {'us/token':>15}  {'alone, us/token':>15}  {'a step':>8}  {'us':>8}")
    for case in cases:
        reading, alone = Sample.of(case.reading[1:]), Sample.of(case.detokenizing[1:])
        print(
            f"{case.name:44}  {_micro(reading):>15}  {_micro(alone):>15}  "
            f"{reading.median / step.low:8.2%}  "
            f"{Sample.of(case.starting[1:]).median * 1e6:8.0f}"
        )
    print(
        f"\na decode step of {engine.name}: {step.median * 1e3:.2f} ms "
        f"({step.low * 1e3:.2f}-{step.high * 1e3:.2f}), medians of {options.runs} runs; "
        "shares are of the fastest step"
    )


def _cases(tokenizer: Tokenizer) -> list[Case]:
    hermes, xml = _dialect("hermes", HermesFormat()), _dialect("xml", FunctionXmlFormat())
    said = [
        ("plain text, nothing looked for but a stop", Dialect(name="plain"), PROSE * 3, False),
        ("plain text, where reasoning may come", hermes, PROSE * 3, False),
        ("reasoning, text and a call in JSON", hermes, THOUGHT + HERMES_CALL, True),
        ("reasoning, text and a call in XML", xml, THOUGHT + XML_CALL, True),
    ]
    return [
        Case(name, dialect, tokenizer.encode(text, add_special_tokens=False), tools, [], [], [])
        for name, dialect, text, tools in said
    ]


def _dialect(name: str, tools: ToolFormat) -> Dialect:
    return Dialect(
        name=name,
        reasoning=ReasoningMarks(open="<think>", close="</think>", ending="\n</think>\n\n"),
        tools=tools,
        call_ends=("</tool_call>",),
    )


def _micro(sample: Sample) -> str:
    median, low, high = (1e6 * each for each in (sample.median, sample.low, sample.high))
    return f"{median:.1f} ({low:.0f}-{high:.0f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype")
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
