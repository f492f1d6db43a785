"""Exports published draft models that read hidden states: EAGLE-3 heads, and PARD-2."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import openvino as ov

from ov_specdec.errors import ExportError
from ov_specdec.files import read_json
from ov_specdec.graph.hidden_states import (
    embedding_part,
    hidden_states,
    make_projection,
    read_features,
)
from ov_specdec.graph.products import scatter_logits
from ov_specdec.models.devices import openvino_core
from ov_specdec.models.exported import read_ir
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import IR_FILE, PROJECTION_FILE, read_config

Tensors = dict[str, Any]

EAGLE3 = {
    *("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"),
    *("Eagle3Speculator", "Eagle3DraftModel"),
}
"""Architectures of heads: of SafeAILab and AngelSlim, then of speculators."""

REFUSED = {
    "peagle": "P-EAGLE drafts several tokens from one hidden state",
    "dflash": "DFlash attends to later tokens, which passes on a KV cache cannot",
    "dspark": "DSpark attends to later tokens, which passes on a KV cache cannot",
    "mtp": "MTP heads belong to models with recurrent layers, which give no hidden states here",
    "eagle": "EAGLE-1 and EAGLE-2 read the last layer only",
}
"""Other heads, by a part of their architecture or type, and why they cannot be used."""

FLAGS = {"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"}
SPECULATORS = {
    *FLAGS,
    *("architectures", "auto_map", "draft_vocab_size", "dtype", "eagle_aux_hidden_state_layer_ids"),
    *("embed_requires_grad", "enable_sp_ulysses", "has_no_defaults_at_first_init", "model_type"),
    *("speculators_config", "speculators_model_type", "speculators_version", "target_hidden_size"),
    *("tie_word_embeddings", "torch_dtype", "transformer_layer_config", "transformers_version"),
}
"""Settings of speculators. Others might change what a head computes."""

LEARNT = 2048
"""Maximum tokens that such a draft model reads. Most learnt with no more, and fewer of their draft
tokens are accepted after longer texts: of one for Qwen3-8B 2.3 a pass at 2,048, 1.1 at 16,000."""

SCALE = 0.02
"""PARD-2's scale of hidden states, if its configuration has none."""


def kind_of_draft(config: Mapping[str, Any], name: str) -> Literal["eagle3", "pard2"] | None:
    """The kind of a draft model that reads hidden states, by config.json; None for another draft.

    Raises `ExportError` for one that cannot be used.
    """
    if config.get("pard2") or config.get("spd_type") == "pard2":
        return "pard2"
    kinds = [config.get(key) for key in ("architectures", "speculators_model_type", "model_type")]
    text = str(kinds).lower().replace("_", "")
    if EAGLE3.intersection(config.get("architectures") or ()):
        if all(config.get(key) is None for key in ("pard_token", "ptd_token_id")):
            return "eagle3"
        text = "peagle"
    reason = next((why for word, why in REFUSED.items() if word in text), "")
    if reason:
        raise ExportError(
            f"'{name}' cannot be used ({reason}): name an EAGLE-3 head, a PARD-2 model or an "
            "ordinary draft model"
        )
    return None


def needs_main(name: str) -> bool:
    """Whether a checkpoint is a draft model that reads the main model's hidden states.

    It then gets the main model's tokenizer. Raises `ExportError` for one that cannot be used.
    """
    return kind_of_draft(read_config(name)[1], name) is not None


@dataclass(frozen=True)
class Eagle3Config:
    """What config.json says of a head.

    settings: of its layers. layers: hidden states that it reads, by `transformers`' index; None: by
    the main model's number of layers.
    """

    settings: Mapping[str, Any]
    layers: Sequence[int] | None
    flags: Mapping[str, bool]

    @classmethod
    def read(cls, config: Mapping[str, Any], name: str) -> "Eagle3Config":
        """Raises `ExportError` for settings that are not supported."""
        settings = dict(config.get("transformer_layer_config") or config)
        unknown = {*config} - SPECULATORS if "transformer_layer_config" in config else set[str]()
        unknown |= {"eagle_config", "num_experts"} & {*config, *settings}
        if unknown:
            raise ExportError(
                f"{name}/config.json has the setting '{min(unknown)}', which is not known, and may "
                "change what the head computes: use another head"
            )
        flags = {flag: bool(config.get(flag)) for flag in FLAGS}
        if flags["norm_before_fc"] and flags["fc_norm"]:
            raise ExportError(
                f"{name}/config.json has both norm_before_fc and fc_norm: remove the one that the "
                "head was not trained with"
            )
        if (family := settings.get("model_type")) not in ("llama", "qwen3"):
            raise ExportError(
                f"'{name}' has layers of '{family}', not of llama or qwen3: use another head"
            )
        window = settings.get("sliding_window")
        is_windowed = "sliding_attention" in (settings.get("layer_types") or ())
        if window and (is_windowed or settings.get("use_sliding_window")) and window < LEARNT:
            raise ExportError(
                f"'{name}' attends to a window of {window} tokens, fewer than the {LEARNT} that "
                "heads read here: use another head"
            )
        skipped = {"architectures", "auto_map", "sliding_window", "layer_types", *FLAGS}
        settings = {key: value for key, value in settings.items() if key not in skipped}
        return cls(settings, config.get("eagle_aux_hidden_state_layer_ids"), flags)


def write_eagle3(
    name: str,
    config: Mapping[str, Any],
    main: Path,
    target: Path,
    compress: Callable[[ov.Model], ov.Model],
) -> None:
    """Write a head as an IR for the exported main model in a folder, whose tokenizer it gets.

    compress: weights of an IR, in place of it. Raises `ExportError` for a head that does not fit.
    """
    import torch

    read, tensors = Eagle3Config.read(config, name), read_tensors(name)
    main_model = read_ir(ModelFolder.read(main))
    vocab_size = int(main_model.output("logits").partial_shape[-1].get_length())
    num_layers = len(hidden_states(main_model)) - 1
    layers = read.layers or (2, num_layers // 2, num_layers - 3)
    names = ["input_norm.weight"] if read.flags["norm_before_fc"] else []
    if read.flags["fc_norm"]:
        names = [f"fc_norm.{index}.weight" for index in range(len(layers))]
    if missing := {*names, "lm_head.weight"} - {*tensors}:
        raise ExportError(f"'{name}' has no {min(missing)}: give a complete checkpoint")
    norms = [tensors.pop(key) for key in names]
    projection = _projection(
        main_model, name, layers, tensors, "fc", norms, read.settings.get("rms_norm_eps", 1e-6)
    )
    tokens = _drafted_tokens(name, tensors, main, vocab_size)
    if "embed_tokens.weight" not in tensors:
        tensors["embed_tokens.weight"] = torch.tensor(_embeddings(main_model, vocab_size))
    model = _convert(name, read, tensors, len(tokens))
    scatter_logits(model, tokens, vocab_size)
    target.mkdir()
    ov.save_model(compress(model), target / IR_FILE)
    ov.save_model(compress(projection), target / PROJECTION_FILE)
    _write_config(target, {**read.settings, "vocab_size": vocab_size})
    _copy_tokenizer(main, target)


def _drafted_tokens(name: str, tensors: Tensors, main: Path, vocab_size: int) -> list[int]:
    """The main model's token of each row of a head's logits."""
    size = int(tensors["lm_head.weight"].shape[0])
    offsets = tensors.pop("d2t").tolist() if "d2t" in tensors else [0] * size
    tokens = [row + int(offset) for row, offset in enumerate(offsets)]
    if len({*tokens}) < size or min(tokens) < 0 or max(tokens) >= vocab_size:
        raise ExportError(
            f"'{name}' drafts tokens that {main} does not have, or some twice (d2t): use a head "
            "that was made for this main model"
        )
    return tokens


def _convert(name: str, read: Eagle3Config, tensors: Tensors, num_drafted: int) -> ov.Model:
    """The model of a head with these tensors."""
    from ov_specdec.models.eagle3 import Eagle3Head, convert

    rows = int(tensors["embed_tokens.weight"].shape[0])
    own = {flag: read.flags[flag] for flag in ("norm_before_residual", "norm_output")}
    head = Eagle3Head(read.settings, rows, num_drafted, **own)
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"'{name}' is no EAGLE-3 head of a known form ({reason})") from error
    return convert(head)


def _copy_tokenizer(main: Path, target: Path) -> None:
    for file in main.iterdir():
        is_own = file.name in ("config.json", "generation_config.json")
        if file.suffix in (".json", ".jinja", ".model") and not is_own:
            shutil.copy(file, target)


def add_pard2(name: str, config: Mapping[str, Any], main: Path, target: Path) -> None:
    """Make an exported PARD-2 model read hidden states of the main model in a folder.

    Raises `ExportError` for one that does not fit.
    """
    layers = config.get("pard2_target_layers")
    if not layers:
        raise ExportError(
            f"{name}/config.json has no pard2_target_layers: add the hidden states that it was "
            "trained with"
        )
    folder = ModelFolder.read(target)
    model, main_model = read_ir(folder), read_ir(ModelFolder.read(main))
    read_features(model)
    scales = (config.get(key) for key in ("pard2_scale", "pard_scale", "feat_scale"))
    scale = next((scale for scale in scales if scale is not None), SCALE)
    tensors = {key: scale * value for key, value in read_tensors(name, "warp_model.bin").items()}
    projection = _projection(main_model, name, layers, tensors, "target_proj")
    ov.save_model(projection, target / PROJECTION_FILE)
    changed = folder.ir.with_name("changed.xml")
    ov.save_model(model, changed, compress_to_fp16=False)
    for suffix in (".xml", ".bin"):  # the model that was read is mapped from the old file
        changed.with_suffix(suffix).replace(folder.ir.with_suffix(suffix))
    _write_config(target, read_json(target / "config.json"))


def read_tensors(name: str, pattern: str = "") -> Tensors:
    """The tensors of a checkpoint, as f32, by their names in speculators. pattern: of its files."""
    import torch
    from huggingface_hub import snapshot_download
    from safetensors.torch import load_file

    patterns = [pattern] if pattern else ["*.safetensors", "pytorch_model*.bin"]
    is_here = Path(name).is_dir()
    folder = Path(name if is_here else snapshot_download(name, allow_patterns=patterns))
    tensors: Tensors = {}
    for file in [file for each in patterns for file in sorted(folder.glob(each))]:
        is_safe = file.suffix == ".safetensors"
        read = load_file(file) if is_safe else torch.load(file, "cpu", weights_only=True)
        for key, value in read.items():
            own = key.removeprefix("model.").replace("midlayer.", "layers.0.", 1)
            if own != "t2d" and not own.startswith("verifier_") and "rotary_emb" not in own:
                tensors[own] = value if own == "d2t" else value.float()
    if not tensors:
        raise ExportError(f"'{name}' holds no {' nor '.join(patterns)}: give a complete checkpoint")
    return tensors


def _projection(
    main: ov.Model,
    name: str,
    layers: Sequence[int],
    tensors: Tensors,
    own: str,
    norms: Sequence[Any] = (),
    epsilon: float = 0.0,
) -> ov.Model:
    """The projection by `own`, which is taken out of the tensors."""
    weight, bias = tensors.pop(f"{own}.weight", None), tensors.pop(f"{own}.bias", None)
    states = hidden_states(main)
    if weight is None or any(not -len(states) <= layer < len(states) for layer in layers):
        missing = f"no {own}.weight" if weight is None else f"no use without layers {layers}"
        raise ExportError(f"'{name}' has {missing} here: use one that was made for this main model")
    widths = [int(states[layer].partial_shape[-1].get_length()) for layer in layers]
    if weight.shape[1] != sum(widths):
        raise ExportError(
            f"'{name}' reads {weight.shape[1]} values of hidden states, and the main model has "
            f"{sum(widths)} in layers {', '.join(map(str, layers))}: use one that was made for it"
        )
    shift = None if bias is None else bias.numpy()
    return make_projection(layers, weight.numpy(), shift, [norm.numpy() for norm in norms], epsilon)


def _embeddings(main: ov.Model, vocab_size: int) -> Any:
    """The main model's embeddings [vocab, width]."""
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    part = openvino_core().compile_model(embedding_part(main), "CPU", exact)
    return part(np.arange(vocab_size)[None])[0][0]


def _write_config(target: Path, config: Mapping[str, Any]) -> None:
    """Write config.json, with a context of `LEARNT` tokens at most."""
    length = min(config.get("max_position_embeddings") or LEARNT, LEARNT)
    content = {**config, "max_position_embeddings": length}
    (target / "config.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
