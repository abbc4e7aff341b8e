"""config.json in, typed values out. Knows nothing of a particular model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phyla.errors import ConfigError
from phyla.validation import expected, place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint


class FamilyConfig(BaseModel):
    """The base of a family's config: frozen, every spelling by alias, unknown keys kept aside.

    A subclass declares the keys that change the computation; keys it does not know stay readable in
    `model_extra` and are never an error.

    Attributes:
        vocab_size: rows of the head; may exceed the tokenizer's vocabulary.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False
    )

    family: ClassVar[str] = "?"

    vocab_size: int = Field(gt=0)

    def settle(self, checkpoint: Checkpoint) -> Self:
        """Decide what config.json leaves to the files, such as whether there is a head."""
        return self

    @property
    def context_length(self) -> int | None:
        """How many tokens the model was made for; None when the config does not say."""
        return None

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Read the content of config.json.

        Raises:
            ConfigError: a key is missing or wrong; names the key, expected and found.
        """
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            first = error.errors()[0]
            key = place("", first["loc"]) or "config.json"
            missing = first["type"] == "missing"
            found = None if missing else first["input"]
            wanted = "present" if missing else expected(first)
            raise ConfigError(cls.family, key, wanted[:1].lower() + wanted[1:], found) from None
