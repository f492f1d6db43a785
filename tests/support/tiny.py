"""Tiny random checkpoints of several architectures, exported for real, once for many runs."""

import gc
import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

ARCHITECTURES = (
    *("llama", "qwen2", "qwen3", "gpt2", "gpt_neox"),
    *("opt", "bloom", "mpt", "phi3", "mistral", "longrope"),
)
TYPICAL = ("llama", "mistral", "mpt", "bloom")
"""Those that every run has all tests of: a plain one, a sliding window, positions by index, and
positions that are counted from the mask."""
VOCAB_SIZE = 320
MASK = 300
"""The mask token of parallel drafts: in their embedding, and in no tokenizer."""
CONTEXT = 256
BORDER = 64
"""Tokens up to which "longrope", a Phi-3, takes its short factors."""
EOS = "<eos>"

REFERENCE_PROMPTS = ([5, 6, 7, 8, 9, 10], [280, 17, 200] * 12)
REFERENCE_TOKENS = 80

MADE_BY = ("nncf", "openvino", "optimum", "optimum-intel", "tokenizers", "torch", "transformers")
"""The packages on which it depends what an export holds."""

# Trained on, so that merges exist; any text would do.
SAMPLE = "def area(width, height):\n    return width * height\n\nprint(area(3, 4))\n"


def save_tokenizer(
    folder: Path,
    *,
    sample: str = SAMPLE,
    vocab_size: int = VOCAB_SIZE,
    first: Sequence[str] = (EOS,),
    last: Sequence[str] = (),
) -> None:
    """Save a byte-level BPE. first, last: special tokens before and after; one ends texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=[*first],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([sample], trainer)
    backend.add_special_tokens([*last])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=[*first, *last][0])
    made.save_pretrained(folder)


def save_checkpoint(
    architecture: str, folder: Path, *, width: int = VOCAB_SIZE, **more: Any
) -> None:
    """Save a random model, the same for the same architecture.

    width: columns of the logits. more: of its configuration.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    common = {"vocab_size": width, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    common["tie_word_embeddings"] = False  # tied and random, a model just repeats its last token
    heads = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    wide = {**heads, "intermediate_size": 96, "max_position_embeddings": CONTEXT}
    gqa = {**wide, "num_key_value_heads": 2}
    settings = {
        "llama": gqa,
        "qwen2": gqa,
        "qwen3": {**gqa, "head_dim": 16},
        "mistral": {**gqa, "sliding_window": 24},
        "phi3": {**gqa, "sliding_window": None},
        "longrope": {
            **{**gqa, "sliding_window": None, "original_max_position_embeddings": BORDER},
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 6,
                "long_factor": [1.0, 2.5, 4.0, 5.5, 7.0, 8.5],
            },
        },
        "gpt_neox": wide,
        "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
        "opt": {**wide, "ffn_dim": 96, "word_embed_proj_dim": 48},
        "bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 4},
        "mpt": {"d_model": 48, "n_layers": 2, "n_heads": 4, "max_seq_len": CONTEXT},
    }[architecture]
    torch.manual_seed(1)
    model_type = {"longrope": "phi3"}.get(architecture, architecture)
    config = AutoConfig.for_model(model_type, **{**common, **settings, **more})
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                # As initialized, attention hardly looks around and every token repeats itself.
                weight.mul_(4.0)
    model.save_pretrained(folder)
    save_tokenizer(folder)


def export(checkpoint: Path, folder: Path, task: str = "text-generation", **shapes) -> Path:
    """Export a checkpoint through Optimum in this process, weights as they are.

    shapes: of the inputs that it is traced with, under Optimum's names.
    """
    from optimum.exporters.openvino import main_export

    # Optimum collects garbage several times: without this, over all that tests have imported.
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns a dozen times
        main_export(str(checkpoint), str(folder), task=f"{task}-with-past", stateful=True, **shapes)
    gc.unfreeze()
    return folder


def save_noisy(source: Path, target: Path, noise: float) -> None:
    """Save an IR with noise on its matrices, by part of their own standard deviation.

    A hybrid's convolution is there twice, for single tokens and for several: both stay the same.
    """
    import numpy as np
    import openvino as ov
    from openvino import opset13 as ops

    model = ov.Core().read_model(source)
    generator, drawn = np.random.default_rng(1), dict[bytes, np.ndarray]()
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and node.get_element_type() == ov.Type.f32:
            weights = node.get_data()
            if weights.ndim > 1 and weights.size > 100:
                if (content := weights.tobytes()) not in drawn:
                    drawn[content] = generator.standard_normal(weights.size)
                own = drawn[content].reshape(weights.shape)
                changed = weights + own * weights.std() * noise
                node.output(0).replace(ops.constant(changed.astype(np.float32)).output(0))
    ov.save_model(model, target, compress_to_fp16=False)


def save_stateless_ir(folder: Path) -> None:
    """Save an IR over token ids that keeps no KV cache."""
    import numpy as np
    import openvino as ov
    from openvino import opset13 as ops

    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    ids.output(0).tensor.set_names({"input_ids"})
    ov.save_model(ov.Model([ops.convert(ids, "f32")], [ids], "x"), folder / "openvino_model.xml")


def reference(checkpoint: Path, prompt: list[int], num_tokens: int = REFERENCE_TOKENS) -> list[int]:
    """So many tokens, decoded greedily by transformers on torch without any cache."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(num_tokens):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1, :290]
            tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@dataclass(frozen=True)
class MadeModels:
    """A main model, and a draft that agrees with it sometimes, in a folder.

    checkpoint: the main's, where it was exported here. expected: what torch generates from it.
    """

    folder: Path

    @property
    def main(self) -> Path:
        return self.folder / "main"

    @property
    def draft(self) -> Path:
        return self.folder / "draft"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def expected(self) -> Any:
        return json.loads((self.folder / "expected.json").read_text())


def make_pair(architecture: str, folder: Path) -> None:
    """Fill the folder of `MadeModels`; expected are outputs after each of `REFERENCE_PROMPTS`."""
    made = MadeModels(folder)
    save_checkpoint(architecture, made.checkpoint)
    export(made.checkpoint, made.main)
    shutil.copytree(made.main, made.draft)
    ir = "openvino_model.xml"
    save_noisy(made.main / ir, made.draft / ir, 0.02)
    outputs = [reference(made.checkpoint, prompt) for prompt in REFERENCE_PROMPTS]
    (folder / "expected.json").write_text(json.dumps(outputs))


@dataclass(frozen=True)
class Shelf:
    """A folder for what takes long to make, filled once for all processes and for later runs.

    What is there depends on the sources that make it and on versions: with others it is made anew.
    """

    folder: Path

    def copy(self, name: str, make: Callable[[Path], None], target: Path, *sources: Path) -> Path:
        """A copy, for a test to do with as it likes, of what `make` puts into a folder.

        sources: further files and folders that it depends on.
        """
        digest = _digest([Path(__file__), *sources])
        made = self.folder / f"{name}-{digest}"
        with FileLock(f"{made}.lock"):
            if not made.exists():
                with tempfile.TemporaryDirectory(dir=self.folder, prefix="partial-") as partial:
                    complete = Path(partial) / name
                    complete.mkdir()
                    make(complete)
                    complete.rename(made)
        return Path(shutil.copytree(made, target))


def _digest(sources: list[Path]) -> str:
    """Of the contents of files, those in folders included, and of the versions of `MADE_BY`."""
    digest = hashlib.sha256(str([version(name) for name in MADE_BY]).encode())
    for source in sources:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file() and file.suffix != ".pyc":
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
