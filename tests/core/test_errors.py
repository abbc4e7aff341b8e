"""The error tree: whose fault, which field, what next; as attributes and in the text."""

from __future__ import annotations

import inspect
import pickle

import pytest

import phyla
from phyla import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.PhylaError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_public_and_in_one_tree(kind):
    assert issubclass(kind, errors.PhylaError)
    assert getattr(phyla, kind.__name__) is kind
    assert kind.fault in {"request", "checkpoint", "plugin", "engine"}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_it_is_for(kind):
    assert inspect.getdoc(kind)
    assert kind.__doc__ != errors.PhylaError.__doc__ or kind is errors.PhylaError


def test_the_text_is_the_message_and_then_the_hint():
    error = errors.PhylaError("It is wrong.", field="x", hint="Do this.")
    assert str(error) == "It is wrong. Do this."
    assert (error.message, error.field, error.hint) == ("It is wrong.", "x", "Do this.")


def test_without_a_hint_the_text_is_the_message():
    assert str(errors.PhylaError("It is wrong.")) == "It is wrong."


def test_a_checkpoint_error_is_about_its_file_unless_a_field_is_named():
    error = errors.CheckpointError("Cut off.", file="model.safetensors", found=10, expected=20)
    assert (error.field, error.found, error.expected) == ("model.safetensors", 10, 20)
    assert errors.CheckpointError("Bad.", file="config.json", field="eps").field == "eps"


def test_a_config_error_names_family_key_expected_and_found():
    error = errors.ConfigError("toy", "hidden_size", "an integer", "wide")
    assert isinstance(error, errors.CheckpointError)
    assert (error.family, error.key, error.field) == ("toy", "hidden_size", "hidden_size")
    assert "toy: config key 'hidden_size' should be an integer, found 'wide'." in str(error)


def test_a_config_error_about_several_keys_does_not_show_the_whole_file():
    error = errors.ConfigError("toy", "config.json", "a to be a multiple of b", {"a": 3, "b": 2})
    assert str(error).startswith("toy: config.json: expected a to be a multiple of b. ")


def test_a_config_error_says_that_a_key_is_missing():
    error = errors.ConfigError("toy", "text_config.hidden_size", "present", None)
    assert str(error).startswith("toy: config.json has no 'text_config.hidden_size'. ")


def test_a_context_overflow_counts():
    error = errors.ContextOverflowError(limit=8, excess=3)
    assert (error.limit, error.excess) == (8, 3)
    assert "11 tokens, 3 more than the 8" in str(error)


@pytest.mark.parametrize(
    ("configured", "hint"),
    [
        (None, "Shorten the prompt; max_context can be raised up to the model's own limit."),
        (8, "Shorten the prompt."),
        (10, "Shorten the prompt."),
        (64, "Shorten the prompt, or load the model with max_context=64."),
    ],
)
def test_a_context_overflow_speaks_of_max_context_only_where_it_helps(configured, hint):
    error = errors.ContextOverflowError(limit=8, excess=3, configured=configured)
    assert (error.hint, error.configured) == (hint, configured)


def test_a_template_error_points_at_the_message():
    error = errors.TemplateError("Refused.", index=2, role="tool", reason="no tools")
    assert (error.field, error.index, error.role, error.reason) == (
        "messages[2]",
        2,
        "tool",
        "no tools",
    )
    assert errors.TemplateError("There is none.").field is None


def test_media_errors_point_at_the_item():
    assert errors.MediaError("Not an image.", index=1).field == "media[1]"
    modality = errors.UnsupportedModalityError("No.", modality="audio", index=0)
    assert (modality.field, modality.index) == ("audio", 0)


def test_a_request_error_is_no_checkpoint_error():
    assert not issubclass(errors.RequestError, errors.CheckpointError)
    assert issubclass(errors.EmptyInputError, errors.RequestError)


ONE_OF_EACH = [
    errors.PhylaError("It is wrong.", field="x", hint="Do this."),
    errors.CheckpointError("Cut off.", file="model.safetensors", found=10, expected=20),
    errors.ConfigError("toy", "hidden_size", "an integer", "wide"),
    errors.UnsupportedModelError("None.", model_type="toy", distributions=("a", "b")),
    errors.RequestError("Bad.", field="seed", expected=1, found=2),
    errors.ContextOverflowError(limit=8, excess=3),
    errors.TemplateError("Refused.", index=2, role="tool", reason="no tools"),
    errors.MediaError("Not an image.", index=1),
    errors.UnsupportedModalityError("No.", modality="audio", index=0),
    errors.PluginError("Broken.", plugin="toy", distributions=("phyla-toy",)),
]


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_attributes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
