"""config.json of a toy checkpoint."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AliasChoices, Field

from phyla.family import FamilyConfig


class Config(FamilyConfig):
    """The keys of a toy model, on top of `vocab_size`."""

    family: ClassVar[str] = "toy"

    hidden_size: int = Field(gt=0)
    num_blocks: int = Field(gt=0)
    num_heads: int = Field(gt=0, validation_alias=AliasChoices("num_heads", "n_head"))
    head_dim: int = Field(gt=0)
    mlp_size: int = Field(gt=0)
