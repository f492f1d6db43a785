"""Export a checkpoint to an OpenVINO model with int8 weights and put it in place in one move.

``optimum-cli`` writes into a folder beside the target; the paths of the machine it ran on are
taken out of what it wrote; then the folder takes the target's name.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

# Written by newer transformers and of no use to a reader; older ones know only the other class.
TOKENIZER_CLASS = {"TokenizersBackend": "PreTrainedTokenizerFast"}


def pathless(value: Any) -> Any:
    """A JSON value with every string that is an absolute path made null."""
    if isinstance(value, dict):
        return {key: pathless(member) for key, member in value.items() if key != "_name_or_path"}
    if isinstance(value, list):
        return [pathless(member) for member in value]
    return None if isinstance(value, str) and Path(value).is_absolute() else value


def tidy(folder: Path) -> None:
    """Take machine paths and indentation out of the text files of an export."""
    for file in folder.glob("*.json"):
        value = json.loads(file.read_text(encoding="utf-8"))
        if file.name == "tokenizer.json":
            # Its strings are vocabulary, "/usr" perhaps among them; compact form halves it.
            file.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
            continue
        value = pathless(value)
        if file.name == "tokenizer_config.json":
            made = value.get("tokenizer_class")
            value["tokenizer_class"] = TOKENIZER_CLASS.get(made, made)
            value.pop("is_local", None)
        file.write_text(json.dumps(value, indent=2) + "\n")
    for file in folder.glob("*.xml"):
        text = re.sub(r"\n\s+", "\n", file.read_text(encoding="utf-8"))
        file.write_text(re.sub(r'<[\w.-]+ value="/[^"]*"\s*/>\n', "", text), encoding="utf-8")


def add_checkpoint(checkpoint: Path, target: Path) -> None:
    """Copy the checkpoint itself, its weights in fp16, so that the export can be tried offline."""
    target.mkdir(parents=True, exist_ok=True)
    weights = load_file(checkpoint / "model.safetensors")
    halves = {name: tensor.to(torch.float16) for name, tensor in weights.items()}
    save_file(halves, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text())
    config["dtype"] = "float16"
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint / name, target / name)


def export(checkpoint: Path, out: Path, weights: str = "int8", keep: bool = False) -> None:
    """Export ``checkpoint`` to ``out``, replacing it; ``keep``: with the checkpoint beside it."""
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("optimum-cli")), "export", "openvino"]
    command += ["--model", str(checkpoint), "--task", "text-generation-with-past"]
    command += ["--weight-format", weights, "--disable-convert-tokenizer", str(part)]
    subprocess.run(command, check=True)  # noqa: S603 - our own words and two paths
    tidy(part)
    old = out.with_name(out.name + ".old")
    if out.exists():
        out.rename(old)
    part.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    if keep:
        add_checkpoint(checkpoint, out.with_name("checkpoint"))
        tidy(out.with_name("checkpoint"))


def main() -> None:
    """Export one checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", default="int8", help="weight format of optimum-cli")
    parser.add_argument("--checkpoint-too", action="store_true", help="also ship the checkpoint")
    args = parser.parse_args()
    export(args.checkpoint, args.out, args.weights, args.checkpoint_too)


if __name__ == "__main__":
    main()
