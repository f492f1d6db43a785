"""EAGLE-3 heads as torch modules, read from checkpoints, and their conversion.

Source: Li et al. (EAGLE-3, arXiv 2503.01840). Checkpoints of SafeAILab and AngelSlim have the name
`midlayer` for the only layer, those of speculators `layers.0`, and flags.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import openvino as ov
import torch
from optimum.exporters.openvino.stateful import fuse_cache_reorder, make_stateful
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from ov_specdec.runner.base import FEATURES, STATES

BEYOND_F16 = 2.0**30

INPUTS = ("input_ids", FEATURES, "attention_mask", "position_ids")


class Past:
    """Keys and values of each layer, as attention of transformers extends them."""

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.pairs = list(pairs)

    def update(
        self,
        keys: Tensor,
        values: Tensor,
        layer_idx: int,
        cache_kwargs: Any = None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Append to the layer's; returns all of them."""
        old_keys, old_values = self.pairs[layer_idx]
        pair = torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2)
        self.pairs[layer_idx] = pair
        return pair


class Eagle3Head(nn.Module):  # type: ignore[misc]
    """A head: its first layer attends over embeddings joined with projected hidden states.

    settings: of its layers, with their `model_type`. draft_size: tokens that it has logits of.
    norm_before_residual: its residual is the normalized hidden state. norm_output: so is the hidden
    state that it gives.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        vocab_size: int,
        draft_size: int,
        *,
        norm_before_residual: bool = False,
        norm_output: bool = False,
    ) -> None:
        super().__init__()
        self.config = AutoConfig.for_model(**{**settings, "vocab_size": 2, "pad_token_id": None})
        make: Any = AutoModelForCausalLM.from_config
        family = make(self.config, attn_implementation="sdpa").model
        width = self.config.hidden_size
        self.norm_before_residual, self.norm_output = norm_before_residual, norm_output
        self.embed_tokens = nn.Embedding(vocab_size, width)
        self.layers, self.rotary_emb, self.norm = family.layers, family.rotary_emb, family.norm
        self.lm_head = nn.Linear(width, draft_size, bias=False)
        # f16 would turn late tokens too far. A conversion leaves numbers beyond its range in f32.
        self.rotary_emb.inv_freq *= 1 / BEYOND_F16
        first = self.layers[0]
        first.hidden_norm = type(first.input_layernorm)(width, self.config.rms_norm_eps)
        for name in ("q_proj", "k_proj", "v_proj"):
            old = getattr(first.self_attn, name)
            new = nn.Linear(2 * width, old.out_features, bias=old.bias is not None)
            setattr(first.self_attn, name, new)

    def forward(
        self,
        input_ids: Tensor,
        hidden_states: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        *past: Tensor,
    ) -> tuple[Tensor, ...]:
        """Logits [batch, tokens, draft_size], hidden states, and keys and values of each layer.

        hidden_states: [batch, tokens, width], of the tokens before. attention_mask: of all tokens.
        """
        cache = Past(list(zip(past[::2], past[1::2], strict=True)))
        mask = causal_mask(attention_mask, input_ids.shape[1])
        normed, given = self.read(input_ids, hidden_states, mask, position_ids, cache)
        return self.lm_head(normed), given, *(value for pair in cache.pairs for value in pair)

    def read(
        self, input_ids: Tensor, hidden_states: Tensor, mask: Tensor, positions: Tensor, past: Past
    ) -> tuple[Tensor, Tensor]:
        """The hidden states that logits come from, and those that it gives. mask: see `sdpa`."""
        embeds = self.embed_tokens(input_ids)
        common = {
            "position_embeddings": self.rotary_emb(embeds, positions * BEYOND_F16),
            "attention_mask": mask,
            "past_key_values": past,
        }
        first, *others = self.layers
        normed = first.hidden_norm(hidden_states)
        joined = torch.cat([first.input_layernorm(embeds), normed], -1)
        attended, _ = first.self_attn(hidden_states=joined, **common)
        hidden = (normed if self.norm_before_residual else hidden_states) + attended
        hidden = hidden + first.mlp(first.post_attention_layernorm(hidden))
        for layer in others:
            hidden = layer(hidden, **common)
        normed = self.norm(hidden)
        return normed, normed if self.norm_output else hidden


def causal_mask(attention_mask: Tensor, num_queries: int) -> Tensor:
    """The mask [batch, 1, queries, keys] that is added to scores: finite, for padding sees none."""
    keys = torch.arange(attention_mask.shape[1])
    sees = keys[None] <= keys[-num_queries:, None]
    sees = sees[None, None] & attention_mask[:, None, None].bool()
    return torch.where(sees, 0.0, torch.finfo(torch.float32).min)


def convert(head: Eagle3Head) -> ov.Model:
    """A head as a stateful decoder with outputs `logits` and `STATES`."""
    config, num_layers = head.config, len(head.layers)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    past = [torch.zeros(2, config.num_key_value_heads, 3, size)] * (2 * num_layers)
    ids = torch.ones(2, 5, dtype=torch.long)
    states, mask = torch.zeros(2, 5, config.hidden_size), torch.ones(2, 8, dtype=torch.long)
    with torch.no_grad():
        example = (ids, states, mask, ids, *past)
        model = ov.convert_model(head.float().eval(), example_input=example)
    kinds = [f"{layer}.{kind}" for layer in range(num_layers) for kind in ("key", "value")]
    before = [f"past_key_values.{kind}" for kind in kinds]
    after = [f"present.{kind}" for kind in kinds]
    for port, name in zip(model.inputs, [*INPUTS, *before], strict=True):
        port.set_names({name})
        axes = {**{0: -1, 1: -1}, **({2: config.hidden_size} if name == FEATURES else {})}
        if name in before:
            axes = {0: -1, 1: config.num_key_value_heads, 2: -1, 3: size}
        port.get_node().set_partial_shape(ov.PartialShape(list(axes.values())))
        port.get_node().set_friendly_name(name)
    for port, name in zip(model.outputs, ["logits", STATES, *after], strict=True):
        port.set_names({name})
    model.validate_nodes_and_infer_types()
    others = [port for port in model.inputs if port.any_name in INPUTS]
    fuse_cache_reorder(model, others, before, 0)
    make_stateful(model, others, before, after, 0)
    return model
