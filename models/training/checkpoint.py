"""Checkpoints: the state a run resumes from, and the model as transformers loads it."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaForCausalLM

STATE = "state.pt"


def save_state(out: Path, model: LlamaForCausalLM, optimizers: list, clock: dict) -> None:
    """What ``load_state`` needs to go on, replaced in one move so that it is never half there."""
    out.mkdir(parents=True, exist_ok=True)
    state = {
        "layers": len(model.model.layers),
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "clock": clock,
    }
    torch.save(state, out / (STATE + ".part"))
    (out / (STATE + ".part")).replace(out / STATE)


def load_state(out: Path) -> dict[str, Any] | None:
    """The state of an earlier run, or None where there is none."""
    if not (out / STATE).exists():
        return None
    return torch.load(out / STATE, map_location="cpu", weights_only=True)


def save_model(out: Path, model: LlamaForCausalLM, data: Path) -> None:
    """Model, tokenizer and generation settings (greedy, stops at END) for from_pretrained."""
    model.generation_config = GenerationConfig(
        bos_token_id=0, eos_token_id=0, pad_token_id=0, do_sample=False
    )
    model.save_pretrained(out)
    for file in (data / "tokenizer").iterdir():
        shutil.copy(file, out / file.name)
    config = json.loads((out / "config.json").read_text())
    config.pop("_name_or_path", None)
    config["use_cache"] = True
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
