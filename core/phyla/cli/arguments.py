"""The arguments and options that several commands have, each written down once."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

_MODEL = "Model"
_SAMPLING = "Sampling"
_TOOLS = "Reasoning and tools"
_MEDIA = "Images, audio and video"


class DtypeName(str, Enum):
    """What `phyla.load` takes as `dtype`."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    stored = "stored"


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A folder, a Hub id (owner/name), a .gguf file, or demo.",
        show_default=False,
    ),
]
Family = Annotated[
    str | None,
    typer.Option(help="The family that runs it; found out if absent.", rich_help_panel=_MODEL),
]
Revision = Annotated[
    str | None, typer.Option(help="A branch, tag or commit on the Hub.", rich_help_panel=_MODEL)
]
Offline = Annotated[bool, typer.Option("--offline", help="Fetch nothing.", rich_help_panel=_MODEL)]
Dtype = Annotated[
    DtypeName | None,
    typer.Option(
        help="How to hold it, instead of the rule that `phyla inspect` shows.",
        rich_help_panel=_MODEL,
    ),
]
MaxContext = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens that a conversation may have.", rich_help_panel=_MODEL),
]
KvBits = Annotated[
    str | None,
    typer.Option(
        metavar="N or N,N",
        help="Bits of remembered keys and values, or one number for each.",
        rich_help_panel=_MODEL,
    ),
]
System = Annotated[str | None, typer.Option(help="The system message.")]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Tokens of a reply at most.", rich_help_panel=_SAMPLING)
]
Temperature = Annotated[
    float | None,
    typer.Option(min=0, help="0 takes the likeliest token.", rich_help_panel=_SAMPLING),
]
TopP = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Keep the likeliest tokens that have this probability together.",
        rich_help_panel=_SAMPLING,
    ),
]
TopK = Annotated[
    int | None, typer.Option(min=0, help="Keep the K likeliest tokens.", rich_help_panel=_SAMPLING)
]
MinP = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Drop tokens below this fraction of the likeliest one's probability.",
        rich_help_panel=_SAMPLING,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=2**64 - 1, help="Makes a reply repeatable.", rich_help_panel=_SAMPLING),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(help="A text that ends the reply; repeatable.", rich_help_panel=_SAMPLING),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        "--thinking/--no-thinking",
        help="Reasoning on or off, where the model has a choice.",
        rich_help_panel=_TOOLS,
    ),
]
Effort = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Think with this effort; `phyla inspect` lists those that a model knows.",
        rich_help_panel=_TOOLS,
    ),
]
ReasoningBudget = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Tokens of reasoning at most; then the model has to answer.",
        rich_help_panel=_TOOLS,
    ),
]
ShowReasoning = Annotated[
    bool | None,
    typer.Option(
        "--show-reasoning/--hide-reasoning",
        help="Write reasoning to standard error; shown if absent where all goes to a terminal.",
        rich_help_panel=_TOOLS,
    ),
]
Tools = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What the model may call: a JSON list of tools, plain or in the OpenAI form.",
        rich_help_panel=_TOOLS,
    ),
]
ToolChoice = Annotated[
    str,
    typer.Option(
        metavar="CHOICE",
        help="auto, none, required (the reply is a call), or the tool that must be called.",
        rich_help_panel=_TOOLS,
    ),
]
Images = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        metavar="FILE",
        help="A picture, for a model that reads them; repeatable.",
        rich_help_panel=_MEDIA,
    ),
]
Audios = Annotated[
    list[str] | None,
    typer.Option(
        "--audio",
        metavar="FILE",
        help="A sound, or the sound of a video; repeatable.",
        rich_help_panel=_MEDIA,
    ),
]
Videos = Annotated[
    list[str] | None,
    typer.Option(
        "--video",
        metavar="FILE",
        help="A video, without its sound; repeatable.",
        rich_help_panel=_MEDIA,
    ),
]
MaxMediaTokens = Annotated[
    int | None,
    typer.Option(
        "--max-media-tokens",
        metavar="N",
        min=1,
        help="Tokens that each of them may take at most.",
        rich_help_panel=_MEDIA,
    ),
]
Fps = Annotated[
    float | None,
    typer.Option(
        "--fps",
        metavar="F",
        help="Frames to look at of each second of a video.",
        rich_help_panel=_MEDIA,
    ),
]
MaxFrames = Annotated[
    int | None,
    typer.Option(
        "--max-frames",
        metavar="N",
        min=1,
        help="Frames to look at of a video at most.",
        rich_help_panel=_MEDIA,
    ),
]
AllowHttp = Annotated[
    bool,
    typer.Option(
        "--allow-http",
        help="Fetch files that are given as http or https URLs.",
        rich_help_panel=_MEDIA,
    ),
]
Stats = Annotated[bool, typer.Option("--stats", help="Tell the speed on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
