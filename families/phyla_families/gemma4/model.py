"""Gemma 4: the text model, and the towers in front of it.

Google DeepMind, https://github.com/google-deepmind/gemma. Sliding and full attention in turn, each
with a head size and a rotation of its own. The small models give every layer an embedding of its
own (per-layer embeddings, from Gemma 3n) and let the last layers read the keys and values of
earlier ones; the 26B has experts beside its dense MLPs. The 12B has no towers: it reads patches of
pixels and frames of samples themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from phyla.family import CacheKind, Features, Model, Step
from phyla.nn import Rope
from phyla_families.gemma4.conformer import Conformer
from phyla_families.gemma4.layer import Layer, SparseLayer
from phyla_families.gemma4.media_config import ConformerConfig, TowerConfig
from phyla_families.gemma4.patch_embedding import PatchEmbedding
from phyla_families.gemma4.projector import Projector
from phyla_families.gemma4.vision import VisionTower

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phyla.modality import Modality
    from phyla_families.gemma4.config import Config


# A tower looks at so many frames of a video at once, whose MLPs would else fill the memory.
_PICTURES = 16


class Gemma4(Model):
    """Embedding, layers, final norm, head, and a soft bound for the logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, eps, count = config.hidden_size, config.rms_norm_eps, config.num_hidden_layers
        self.config = config
        self.rope = Rope(config.rope, config.head_dim, config.max_position_embeddings)
        self.global_rope = Rope(
            config.global_rope, config.global_head_dim, config.max_position_embeddings
        )
        self.embed_tokens = nn.Embedding(config.vocab_size, dim)
        width = config.hidden_size_per_layer_input
        if width:
            self.embed_tokens_per_layer = nn.Embedding(
                config.vocab_size_per_layer_input, count * width
            )
            self.per_layer_model_projection = nn.Linear(dim, count * width, bias=False)
            self.per_layer_projection_norm = nn.RMSNorm(width, eps)
        layer = SparseLayer if config.enable_moe_block else Layer
        self.layers = [layer(config, index) for index in range(count)]
        self.norm = nn.RMSNorm(dim, eps)
        if not config.tied:
            self.lm_head = nn.Linear(dim, config.vocab_size, bias=False)
        self._build_vision()
        self._build_audio()

    def cache_kinds(self) -> Sequence[CacheKind]:
        """One kind per layer, in order; a layer that reads another's keys is `SharedWith` it."""
        return [layer.self_attn.shape.cache_kind for layer in self.layers]

    def embed(self, step: Step) -> mx.array:
        """`[B, T]` ids to `[B, T, D]`, scaled; features of media take their places unscaled."""
        rows = self.embed_tokens(self._words(step.ids))
        # The scale is rounded to the type that the model runs in, as it was when it was trained.
        return rows.astype(self.norm.weight.dtype) * self.config.hidden_size**0.5

    def __call__(self, hidden: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        """Run the layers and the final norm."""
        rotation, global_rotation = self.rope(step), self.global_rope(step)
        own_inputs = self._own_inputs(hidden, step)
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            turn = rotation if self.config.slides(index) else global_rotation
            own = None if own_inputs is None else own_inputs[:, :, index]
            hidden = layer(hidden, turn, cache, own)
            step.tap(index, hidden)
        return self.norm(hidden)

    def logits(self, hidden: mx.array) -> mx.array:
        """`[..., D]` to `[..., V]`; bounded in float32, where large logits still differ."""
        logits = self.embed_tokens.as_linear(hidden) if self.config.tied else self.lm_head(hidden)
        cap = self.config.final_logit_softcapping
        return logits if cap is None else mx.tanh(logits.astype(mx.float32) / cap) * cap

    def media_features(self, modality: Modality, arrays: Mapping[str, mx.array]) -> Features:
        """Of `pixels` (uint8 `[pictures, H, W, 3]`), or of audio's `frames` (`[N, bins]`)."""
        part = self.config.audio if modality == "audio" else self.config.vision
        if part is None:
            return super().media_features(modality, arrays)
        hidden = (
            self._heard(arrays["frames"]) if modality == "audio" else self._seen(arrays["pixels"])
        )
        return Features(hidden.astype(self.norm.weight.dtype))

    @property
    def needs_ids(self) -> bool:
        """With embeddings for each layer, each token's row is looked up by its id."""
        return bool(self.config.hidden_size_per_layer_input)

    @property
    def rotates_keys(self) -> bool:
        """Both rotations can be moved."""
        return self.rope.turns and self.global_rope.turns

    def rotate_keys(self, layer: int, keys: mx.array, by: int) -> mx.array:
        """Move stored keys to positions `by` further on, by the layer's own rotation."""
        rope = self.rope if self.config.slides(layer) else self.global_rope
        return rope.turn(keys, by)

    def _build_vision(self) -> None:
        vision, dim = self.config.vision, self.config.hidden_size
        if vision is None:
            return
        if isinstance(vision, TowerConfig):
            self.vision_tower, width = VisionTower(vision), vision.hidden_size
        else:
            self.vision_embedder, width = PatchEmbedding(vision), vision.mm_embed_dim
        self.embed_vision = Projector(width, dim, eps=vision.rms_norm_eps)

    def _build_audio(self) -> None:
        audio, dim = self.config.audio, self.config.hidden_size
        if audio is None:
            return
        if isinstance(audio, ConformerConfig):
            self.audio_tower, width = Conformer(audio), audio.output_proj_dims
        else:
            width = audio.audio_embed_dim
        self.embed_audio = Projector(width, dim, eps=audio.rms_norm_eps)

    def _seen(self, pixels: mx.array) -> mx.array:
        tower = isinstance(self.config.vision, TowerConfig)
        look = self.vision_tower if tower else self.vision_embedder
        parts: list[mx.array] = []
        for start in range(0, pixels.shape[0], _PICTURES):
            parts.append(self.embed_vision(look(pixels[start : start + _PICTURES])))
            mx.eval(parts[-1])
        return mx.concatenate(parts)

    def _heard(self, frames: mx.array) -> mx.array:
        tower = isinstance(self.config.audio, ConformerConfig)
        return self.embed_audio(self.audio_tower(frames) if tower else frames)

    def _words(self, ids: mx.array) -> mx.array:
        """The ids to look up: a soft token of an image, a video or audio has no embedding."""
        for soft in self.config.soft_tokens:
            ids = mx.where(ids == soft, self.config.pad_token_id, ids)
        return ids

    def _own_inputs(self, hidden: mx.array, step: Step) -> mx.array | None:
        """The layers' own embeddings `[B, T, layers, P]`: the token's, and the context's share."""
        width = self.config.hidden_size_per_layer_input
        if not width:
            return None
        shape = (*step.ids.shape, self.config.num_hidden_layers, width)
        token = self.embed_tokens_per_layer(self._words(step.ids)).astype(hidden.dtype)
        context = self.per_layer_model_projection(hidden) * self.config.hidden_size**-0.5
        context = self.per_layer_projection_norm(context.reshape(shape))
        return (context + token.reshape(shape) * width**0.5) * 2**-0.5


def build(config: Config) -> Gemma4:
    """The model that the config describes, with unset weights."""
    return Gemma4(config)
