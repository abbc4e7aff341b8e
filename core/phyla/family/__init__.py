"""The contract that a model family is written to.

A family is a frozen value, `Family`; its `plugin.py` reads as a table of contents and hands it to
Phyla through the hook `phyla_provide_families`.
"""

from phyla.backend import prepare

# Before a module in here imports mlx: afterwards it is too late for a faster BLAS.
prepare()

# ruff: noqa: E402
from phyla.family.caches import (
    AttentionCache,
    CacheKind,
    Full,
    NoCache,
    Recurrent,
    SharedAttentionCache,
    SharedWith,
    Sliding,
    StateCache,
)
from phyla.family.config import ConfigPart, FamilyConfig
from phyla.family.decoder import DecoderConfig, check_layer_types
from phyla.family.dialect import (
    ALWAYS_THINKS,
    NEVER_THINKS,
    Dialect,
    History,
    ReasoningMarks,
    Thinking,
    ThinkingLike,
    ThinkingSetting,
    switched_by,
)
from phyla.family.experts import expert_rules
from phyla.family.family import Family
from phyla.family.hybrid import HybridConfig, is_upstream, text_keys
from phyla.family.media import (
    MediaReader,
    MediaReaders,
    MediaRequest,
    MediaRun,
    Plan,
    Prepared,
    Soft,
)
from phyla.family.model import Features, Model
from phyla.family.preprocessing import (
    PREPROCESSOR_FILE,
    PROCESSOR_FILE,
    VIDEO_FILE,
    Affine,
    Channels,
    Deviations,
    MediaSettings,
    Origin,
    PixelSettings,
    Preprocessing,
    Section,
)
from phyla.family.rope import RopeConfig, read_rope, rope_place
from phyla.family.step import Step, Tap
from phyla.family.weights import Drop, Rename, Split, Stack, Transpose, WeightRule

__all__ = [
    "ALWAYS_THINKS",
    "NEVER_THINKS",
    "PREPROCESSOR_FILE",
    "PROCESSOR_FILE",
    "VIDEO_FILE",
    "Affine",
    "AttentionCache",
    "CacheKind",
    "Channels",
    "ConfigPart",
    "DecoderConfig",
    "Deviations",
    "Dialect",
    "Drop",
    "Family",
    "FamilyConfig",
    "Features",
    "Full",
    "History",
    "HybridConfig",
    "MediaReader",
    "MediaReaders",
    "MediaRequest",
    "MediaRun",
    "MediaSettings",
    "Model",
    "NoCache",
    "Origin",
    "PixelSettings",
    "Plan",
    "Prepared",
    "Preprocessing",
    "ReasoningMarks",
    "Recurrent",
    "Rename",
    "RopeConfig",
    "Section",
    "SharedAttentionCache",
    "SharedWith",
    "Sliding",
    "Soft",
    "Split",
    "Stack",
    "StateCache",
    "Step",
    "Tap",
    "Thinking",
    "ThinkingLike",
    "ThinkingSetting",
    "Transpose",
    "WeightRule",
    "check_layer_types",
    "expert_rules",
    "is_upstream",
    "read_rope",
    "rope_place",
    "switched_by",
    "text_keys",
]
