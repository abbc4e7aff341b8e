"""The conformance kit: tiny checkpoints with random weights, and what every family must hold to.

Needs the `test` extra. A family's test module takes five lines::

    from pathlib import Path

    from phyla.testing import Conformance, read_tiny, subjects

    subject = subjects(read_tiny(Path(__file__).with_name("tiny.json")))


    class TestConformance(Conformance):
        pass
"""

from __future__ import annotations

import phyla.engine  # brings the fast BLAS, which has to come before mlx
import phyla.testing.extra  # says what is missing
import phyla.testing.rewriting  # noqa: F401 (before the modules that it is about)
from phyla.testing.agreement import assert_chunks_agree
from phyla.testing.files import CHATML, write_files
from phyla.testing.forward import Forward, assert_close
from phyla.testing.invariants import Conformance, Subject, subjects
from phyla.testing.registries import registry_of
from phyla.testing.scripted import ScriptedEngine
from phyla.testing.tiny import Tiny, prompt_ids, read_tiny, tiny_table, write_checkpoint
from phyla.testing.tokenizer import BYTE_TOKENS, MARKS, SPECIAL_TOKENS
from phyla.testing.weights import random_tensor

__all__ = [
    "BYTE_TOKENS",
    "CHATML",
    "MARKS",
    "SPECIAL_TOKENS",
    "Conformance",
    "Forward",
    "ScriptedEngine",
    "Subject",
    "Tiny",
    "assert_chunks_agree",
    "assert_close",
    "prompt_ids",
    "random_tensor",
    "read_tiny",
    "registry_of",
    "subjects",
    "tiny_table",
    "write_checkpoint",
    "write_files",
]
