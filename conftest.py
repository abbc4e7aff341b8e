"""Runs the Python in README.md, CONTRIBUTING.md and docs/, against a tiny model.

In such a block `phyla` is imported, `engine` is loaded, and `phyla.load` of a Hub id or of `demo`
loads the tiny model too, so that the blocks can be written as a reader would type them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import phyla

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md"],
    fixtures=["phyla_in_docs", "engine"],
).pytest()

_CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with seeded random weights and a vocabulary of bytes."""
    import mlx.core as mx
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    folder.mkdir()
    special = ["<|im_start|>", "<|im_end|>"]
    vocabulary = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(vocabulary)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {**_CONFIG, "vocab_size": tokenizer.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 16}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": _TEMPLATE})
    )
    mx.random.seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens": (config["vocab_size"], 16),
        "norm": (16,),
    }
    for layer in ("layers.0", "layers.1"):
        shapes |= {
            f"{layer}.input_layernorm": (16,),
            f"{layer}.post_attention_layernorm": (16,),
            f"{layer}.self_attn.q_proj": (16, 16),
            f"{layer}.self_attn.k_proj": (8, 16),
            f"{layer}.self_attn.v_proj": (8, 16),
            f"{layer}.self_attn.o_proj": (16, 16),
            f"{layer}.mlp.gate_proj": (32, 16),
            f"{layer}.mlp.up_proj": (32, 16),
            f"{layer}.mlp.down_proj": (16, 32),
        }
    weights = {
        f"model.{name}.weight": mx.random.normal(shape, scale=0.3) for name, shape in shapes.items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def engine(tiny_llama: Path) -> Iterator[phyla.Engine]:
    """The tiny model, loaded; it answers in at most 64 tokens."""
    import phyla

    with phyla.load(tiny_llama, options={"max_tokens": 64}) as loaded:
        yield loaded


@pytest.fixture
def phyla_in_docs(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `phyla.load` load the tiny model for every name that is no path."""
    import phyla
    from phyla.options import OptionsLike, read_options

    load = phyla.load
    short = phyla.Options(max_tokens=64)

    def load_tiny(
        source: str | Path, *, options: OptionsLike = None, **settings: Any
    ) -> phyla.Engine:
        is_path = not isinstance(source, str) or source.startswith((".", "/"))
        defaults = read_options(options).over(short)
        return load(source if is_path else tiny_llama, options=defaults, **settings)

    monkeypatch.setattr(phyla, "load", load_tiny)
