"""Tiny random draft models that read hidden states, in published formats, and what they compute.

The reference is written from the papers: EAGLE-3 (arXiv 2503.01840) and PARD-2 (2605.08632).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.support.folders import change
from tests.support.tiny import MASK, VOCAB_SIZE, save_checkpoint

WIDTH, NUM_LAYERS, HEADS, KV_HEADS, SIZE = 48, 8, 4, 2, 16
EPSILON = 1e-6
DRAFTED = list(range(2, VOCAB_SIZE, 3))
"""The tokens of a reduced vocabulary."""
LAYER = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": SIZE,
    "intermediate_size": 96,
    "rms_norm_eps": EPSILON,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "vocab_size": VOCAB_SIZE,
    "tie_word_embeddings": False,
}


def save_main(folder: Path, architecture: str = "llama") -> None:
    """A main model of eight layers."""
    save_checkpoint(architecture, folder, num_hidden_layers=NUM_LAYERS)


@dataclass(frozen=True)
class Format:
    """A format of heads. layers: hidden states that it reads. speculators: with its names."""

    family: str = "llama"
    speculators: bool = False
    flags: dict[str, object] = field(default_factory=dict)
    num_layers: int = 1
    layers: tuple[int, ...] = (2, 4, 5)
    drafted: list[int] = field(default_factory=lambda: DRAFTED)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Random weights, under the names of speculators, which f16 has."""
        generator = torch.Generator().manual_seed(5)

        def normal(*shape: int, scale: float = 0.25) -> torch.Tensor:
            drawn = torch.randn(*shape, generator=generator) * scale
            return (drawn + (len(shape) == 1)).half().float()  # weights of norms are near 1

        found = {"fc.weight": normal(WIDTH, WIDTH * len(self.layers), scale=0.3)}
        found |= {"norm.weight": normal(WIDTH), "lm_head.weight": normal(len(self.drafted), WIDTH)}
        if self.flags.get("norm_before_fc"):
            found["input_norm.weight"] = normal(WIDTH * len(self.layers))
        if self.flags.get("fc_norm"):
            found |= {f"fc_norm.{i}.weight": normal(WIDTH) for i in range(len(self.layers))}
        for index in range(self.num_layers):
            own, wide = f"layers.{index}.", WIDTH * (2 if index == 0 else 1)
            for name in ("input_layernorm", "post_attention_layernorm"):
                found[f"{own}{name}.weight"] = normal(WIDTH)
            if index == 0:
                found[f"{own}hidden_norm.weight"] = normal(WIDTH)
            for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
                found[f"{own}self_attn.{name}_proj.weight"] = normal(rows * SIZE, wide)
            found[f"{own}self_attn.o_proj.weight"] = normal(WIDTH, HEADS * SIZE)
            if self.family == "qwen3":
                for name in ("q_norm", "k_norm"):
                    found[f"{own}self_attn.{name}.weight"] = normal(SIZE)
            for name in ("gate", "up"):
                found[f"{own}mlp.{name}_proj.weight"] = normal(96, WIDTH)
            found[f"{own}mlp.down_proj.weight"] = normal(WIDTH, 96)
        return found

    def save(self, folder: Path) -> None:
        """Save its checkpoint."""
        folder.mkdir(parents=True)
        settings = {**LAYER, "num_hidden_layers": self.num_layers, "model_type": self.family}
        sizes = {"draft_vocab_size": len(self.drafted)}
        tensors = self.tensors()
        if len(self.drafted) < VOCAB_SIZE:
            tensors["d2t"] = torch.tensor(self.drafted) - torch.arange(len(self.drafted))
            tensors["t2d"] = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
        if self.speculators:
            config = {
                "architectures": ["Eagle3DraftModel"],
                "speculators_model_type": "eagle3",
                "eagle_aux_hidden_state_layer_ids": list(self.layers),
                "transformer_layer_config": settings,
                **sizes,
                **self.flags,
            }
            save_file(tensors, folder / "model.safetensors")
        else:
            config = {"architectures": ["LlamaForCausalLMEagle3"], **settings, **sizes}
            renamed = {key.replace("layers.0.", "midlayer."): tensors[key] for key in tensors}
            torch.save(renamed, folder / "pytorch_model.bin")
        (folder / "config.json").write_text(json.dumps(config))

    def reference(self, main: Path) -> "Reference":
        """What it computes for a main model's checkpoint."""
        return Reference(self, self.tensors(), _load(main))


def _load(checkpoint: Path) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(checkpoint).eval().float()


def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def _rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of [tokens, heads, size]."""
    angles = torch.arange(len(x))[:, None] / 10000.0 ** (torch.arange(0, SIZE, 2) / SIZE)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@dataclass
class Reference:
    """A head without any cache."""

    format: Format
    weights: dict[str, torch.Tensor]
    main: torch.nn.Module

    @torch.no_grad()
    def rows(self, tokens: list[int], drafted: list[int], start: int = 1) -> torch.Tensor:
        """The logits [1 + len(drafted), vocab of the draft] after tokens, and each draft token.

        start: index of the first token that the head reads.
        """
        states = self._projected(tokens[:-1])[start - 1 :]
        rows = []
        for count in range(len(drafted) + 1):
            ids = [*tokens[start:], *drafted[:count]]
            row, state = self._layers(ids, states)
            rows.append(row)
            states = torch.cat([states, state[None]])
        return torch.stack(rows)

    def _projected(self, tokens: list[int]) -> torch.Tensor:
        found = self.main(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        parts = [found[layer][0] for layer in self.format.layers]
        w, flags = self.weights, self.format.flags
        if flags.get("fc_norm"):
            parts = [_norm(part, w[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)]
        joined = torch.cat(parts, -1)
        if flags.get("norm_before_fc"):
            joined = _norm(joined, w["input_norm.weight"])
        return joined @ w["fc.weight"].T

    def _layers(self, ids: list[int], states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of the last token, and its hidden state."""
        w, flags = self.weights, self.format.flags
        embeds = self.main.get_input_embeddings()(torch.tensor(ids)).half().float()
        normed = _norm(states, w["layers.0.hidden_norm.weight"])
        hidden = normed if flags.get("norm_before_residual") else states
        for index in range(self.format.num_layers):
            own = f"layers.{index}."
            x = _norm(hidden, w[f"{own}input_layernorm.weight"])
            if index == 0:
                x = torch.cat([_norm(embeds, w[f"{own}input_layernorm.weight"]), normed], -1)
            hidden = hidden + self._attention(own, x)
            x = _norm(hidden, w[f"{own}post_attention_layernorm.weight"])
            gate = torch.nn.functional.silu(x @ w[f"{own}mlp.gate_proj.weight"].T)
            up = x @ w[f"{own}mlp.up_proj.weight"].T
            hidden = hidden + (gate * up) @ w[f"{own}mlp.down_proj.weight"].T
        out = _norm(hidden, w["norm.weight"])
        given = out if flags.get("norm_output") else hidden
        return out[-1] @ w["lm_head.weight"].T, given[-1]

    def _attention(self, own: str, x: torch.Tensor) -> torch.Tensor:
        w = {name: self.weights[f"{own}self_attn.{name}_proj.weight"] for name in "qkvo"}
        q, k, v = ((x @ w[name].T).view(len(x), -1, SIZE) for name in "qkv")
        if self.format.family == "qwen3":
            q = _norm(q, self.weights[f"{own}self_attn.q_norm.weight"])
            k = _norm(k, self.weights[f"{own}self_attn.k_norm.weight"])
        k, v = (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (_rotate(k), v))
        scores = torch.einsum("qhs,khs->hqk", _rotate(q), k) / SIZE**0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        return torch.einsum("hqk,khs->qhs", scores.softmax(-1), v).flatten(1) @ w["o"].T


def config_of(checkpoint: Path) -> dict[str, object]:
    """The content of its config.json."""
    return json.loads((checkpoint / "config.json").read_text())


PARD2_LAYERS, PARD2_SCALE = (3, -1), 0.5


def save_pard2(folder: Path, architecture: str) -> None:
    """A tiny PARD-2 model for that main model."""
    save_checkpoint(architecture, folder)
    change(
        folder / "config.json",
        pard_token=MASK,
        spd_type="pard2",
        pard2_scale=PARD2_SCALE,
        pard2_target_layers=list(PARD2_LAYERS),
    )
    torch.manual_seed(3)
    weight = torch.randn(WIDTH, 2 * WIDTH).half().float()
    torch.save({"target_proj.weight": weight}, folder / "warp_model.bin")


@torch.no_grad()
def pard2_rows(checkpoint: Path, main: Path, tokens: list[int], length: int) -> torch.Tensor:
    """The logits [length, vocab] of a PARD-2 model after tokens."""
    model, weight = (
        _load(checkpoint),
        torch.load(checkpoint / "warp_model.bin")["target_proj.weight"],
    )
    found = _load(main)(torch.tensor([tokens[:-1]]), output_hidden_states=True).hidden_states
    states = torch.cat([found[layer][0] for layer in PARD2_LAYERS], -1)
    states = torch.cat([torch.zeros_like(states[:1]), states, *[states[-1:]] * (length - 1)])
    ids = torch.tensor([*tokens, *[MASK] * (length - 1)])
    embeds = model.get_input_embeddings()(ids) + PARD2_SCALE * states @ weight.T
    return model(inputs_embeds=embeds[None]).logits[0, -length:]
