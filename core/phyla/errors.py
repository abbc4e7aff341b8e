"""Every error a caller of Phyla can meet, in one tree. Knows nothing else of Phyla.

An error carries, as attributes, whose fault it is (`fault`), which field, file or key it is about
(`field`), and what to do next (`hint`); its text says all three in one or two sentences.
"""

from __future__ import annotations

from typing import ClassVar, Literal

_MOST = 200  # characters of a value in a message

Fault = Literal["request", "checkpoint", "plugin", "engine"]


class PhylaError(Exception):
    """The base of every error that Phyla raises on purpose.

    Attributes:
        fault: whose fault it is: the request's, the checkpoint's, a plugin's or the engine's.
        field: the field, file or key that is wrong, where there is one.
        hint: what to do next, where something can be done.
    """

    fault: ClassVar[Fault] = "engine"

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.field = field
        self.hint = hint
        super().__init__(f"{message} {hint}" if hint else message)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt by calling the class with `args`, which lack our keywords.
        return _rebuild, (type(self), self.args), vars(self)


def _rebuild(kind: type[PhylaError], args: tuple[object, ...]) -> PhylaError:
    return kind.__new__(kind, *args)


class CheckpointError(PhylaError):
    """A checkpoint is missing, broken, or not what its own files say it is."""

    fault: ClassVar[Fault] = "checkpoint"

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        found: object = None,
        expected: object = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.file, self.found, self.expected = file, found, expected
        super().__init__(message, field=field or file, hint=hint)


class ConfigError(CheckpointError):
    """A key of config.json cannot be read by the family that took the checkpoint."""

    def __init__(self, family: str, key: str, expected: str, found: object) -> None:
        self.family, self.key = family, key
        if key == "config.json":  # Several keys that do not go together.
            message = f"{family}: config.json: expected {expected}."
        elif expected == "present":
            message = f"{family}: config.json has no {key!r}."
        else:
            message = f"{family}: config key {key!r} should be {expected}"
            shown = repr(found)
            # What is long is an object or a list of many keys: the reader has the file.
            message += f", found {shown}." if len(shown) <= _MOST else "."
        super().__init__(
            message,
            file="config.json",
            found=found,
            expected=expected,
            field=key,
            hint="Compare config.json with the published one.",
        )


class UnsupportedModelError(PhylaError):
    """No installed family takes this checkpoint, or more than one does.

    Attributes:
        model_type: config.json's `model_type`.
        distributions: the packages whose families both take it.
    """

    fault: ClassVar[Fault] = "checkpoint"

    def __init__(
        self,
        message: str,
        *,
        model_type: str | None,
        distributions: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        self.model_type, self.distributions = model_type, distributions
        super().__init__(message, field="model_type", hint=hint)


class RequestError(PhylaError):
    """A request holds a value that cannot be used: the field, what was expected, what was found."""

    fault: ClassVar[Fault] = "request"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.expected, self.found = expected, found
        super().__init__(message, field=field, hint=hint)


class EmptyInputError(RequestError):
    """There is nothing to run: no message, no token, no text."""


class UnsupportedModalityError(RequestError):
    """The request holds an image, audio or video item that this model cannot read."""

    def __init__(self, message: str, *, modality: str, index: int, hint: str | None = None) -> None:
        self.modality, self.index = modality, index
        super().__init__(message, field=modality, hint=hint)


class TemplateError(RequestError):
    """The checkpoint's chat template refused the conversation, or there is no template.

    Attributes:
        index: the message at which it failed, counted from 0, or None when it is no single one.
        role: that message's role.
        reason: the template's own words.
    """

    def __init__(
        self,
        message: str,
        *,
        index: int | None = None,
        role: str | None = None,
        reason: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.index, self.role, self.reason = index, role, reason
        field = None if index is None else f"messages[{index}]"
        super().__init__(message, field=field, hint=hint)


class MediaError(RequestError):
    """An image, audio or video item cannot be read; `index` counts the request's items from 0."""

    def __init__(self, message: str, *, index: int, hint: str | None = None) -> None:
        self.index = index
        super().__init__(message, field=f"media[{index}]", hint=hint)


class ContextOverflowError(RequestError):
    """The prompt is longer than the context, or a session has no room for what is appended.

    Attributes:
        limit: how many tokens the context holds.
        excess: how many tokens too many there are.
        configured: how many tokens the model was made for, where that is known.
        session: whether it is a session that is full.
        media: how many of the tokens stand for images, audio and videos.
    """

    def __init__(
        self,
        *,
        limit: int,
        excess: int,
        configured: int | None = None,
        session: bool = False,
        media: int = 0,
    ) -> None:
        self.limit, self.excess, self.configured = limit, excess, configured
        self.session, self.media = session, media
        seen = f", {media} of them for images, audio and videos" if media else ""
        smaller = " Media take less with a smaller max_tokens or max_frames." if media else ""
        if session:
            super().__init__(
                f"The session would hold {limit + excess} tokens{seen}, {excess} more than the "
                f"{limit} that it has room for.",
                field="session",
                hint=f"Append less, reset it, or make one with a larger max_seq_len.{smaller}",
            )
            return
        if configured is None:
            hint = "Shorten the prompt; max_context can be raised up to the model's own limit."
        elif configured >= limit + excess:
            hint = f"Shorten the prompt, or load the model with max_context={configured}."
        else:
            hint = "Shorten the prompt."
        super().__init__(
            f"The prompt has {limit + excess} tokens{seen}, {excess} more than the {limit} it may "
            "have.",
            field="messages",
            hint=f"{hint}{smaller}",
        )


class MemoryLimitError(PhylaError):
    """A request cannot fit into the memory that prompts and replies may take together.

    Attributes:
        needed: bytes that it would take.
        limit: bytes that there are.
        held: bytes of it that running requests, sessions and pinned prefixes hold.
    """

    fault: ClassVar[Fault] = "request"

    def __init__(self, *, needed: int, limit: int, held: int = 0) -> None:
        self.needed, self.limit, self.held = needed, limit, held
        taken = f", of which pins and sessions hold {_megabytes(held)}" if held else ""
        hint = "Drop pins, close sessions, shorten" if held else "Shorten"
        super().__init__(
            f"The request needs {_megabytes(needed)} of memory for what it remembers; there are "
            f"{_megabytes(limit)}{taken}.",
            field="messages",
            hint=f"{hint} the prompt, lower max_tokens, or load the model with a larger "
            "memory_limit.",
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


class BusyError(PhylaError):
    """The object is already working for somebody else, or it is closed."""

    fault: ClassVar[Fault] = "request"


class CancelledError(PhylaError):
    """The work was cancelled before it gave a result."""

    fault: ClassVar[Fault] = "request"


class PluginError(PhylaError):
    """A plugin could not be imported, broke its contract, or clashes with another.

    Attributes:
        plugin: the entry point's name.
        distributions: the packages concerned.
    """

    fault: ClassVar[Fault] = "plugin"

    def __init__(
        self,
        message: str,
        *,
        plugin: str | None = None,
        distributions: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        self.plugin, self.distributions = plugin, distributions
        super().__init__(message, field=plugin, hint=hint)
