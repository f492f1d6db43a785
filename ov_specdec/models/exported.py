"""A model read from its folder, before compilation, and whether two of them make a pair."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import openvino as ov

from ov_specdec.errors import ModelError, TokenizerMismatchError, openvino_message
from ov_specdec.graph.paging import connect_positions, recurrent_state
from ov_specdec.models.devices import openvino_core
from ov_specdec.models.folder import ModelFolder
from ov_specdec.runner.base import FEATURES
from ov_specdec.runner.encoder_decoder import HIDDEN_STATES
from ov_specdec.text.guard import GuardReport, compare_tokenizers, list_differences
from ov_specdec.text.pairing import PairingName, PieceTokenizer, TokenizerPair, UsedPairing
from ov_specdec.text.prompt import TextToText
from ov_specdec.text.tokenizer import Tokenizer, load_tokenizer

FEATURES_CHECK = "feature extractor"
"""The guard's check of audio features."""

NEVER_DRAFT = frozenset({"falcon_mamba", "granitemoehybrid", "mamba", "zamba2"})
"""Families whose exported recurrent layers continue their states with single tokens only, so that
no pass can verify draft tokens."""


@dataclass(frozen=True)
class ExportedModel:
    """A model read from its folder: configuration, tokenizer and IR.

    logits_width: columns of its logits. vocab_size: those with a token; the others are padding.
    """

    folder: ModelFolder
    tokenizer: Tokenizer
    model: ov.Model
    logits_width: int
    vocab_size: int

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a text: the generation configuration's, or else the tokenizer's."""
        fallback = self.tokenizer.eos_token_id
        return self.folder.eos_token_ids or frozenset([] if fallback is None else [fallback])

    def text_to_text(self) -> TextToText | None:
        """How an encoder-decoder model starts; None for others. `ModelError` for a speech model."""
        folder = self.folder
        if not folder.is_encoder_decoder:
            return None
        if folder.encoder_ir.is_file():  # a missing one is reported elsewhere
            inputs = {port.any_name for port in read_model(folder.encoder_ir).inputs}
            if "input_ids" not in inputs:
                problem = f"{folder.path} reads {', '.join(sorted(inputs))}, not texts"
                speech = "for speech SpeechPipeline or ov-specdec transcribe"
                raise ModelError(f"{problem}: use a model for text, or {speech}")
        if folder.decoder_start_token_id is None:
            problem = f"the configuration in {folder.path} names no decoder_start_token_id"
            raise ModelError(f"{problem}: add it to generation_config.json")
        return TextToText(folder.decoder_start_token_id, folder.forced_bos_token_id)


def open_exported(path: Path, chat_template: str | Path | None = None) -> ExportedModel:
    """Read a folder; `ModelError` names a missing part. chat_template: see `load_tokenizer`."""
    folder = ModelFolder.read(path)
    tokenizer, model = load_tokenizer(path, chat_template), read_ir(folder)
    width = int(model.output("logits").partial_shape[-1].get_length())
    return ExportedModel(folder, tokenizer, model, width, min(width, tokenizer.vocab_size))


def read_ir(folder: ModelFolder) -> ov.Model:
    """Read a decoder's IR. `ModelError` if it is not a stateful decoder over token ids."""
    model = read_model(folder.ir)
    if folder.model_type in NEVER_DRAFT and recurrent_state(model) is not None:
        problem = f"{folder.path} has recurrent layers of '{folder.model_type}'"
        remedy = "use openvino.genai, which decodes plainly, or another model"
        raise ModelError(f"{problem}, whose passes cannot verify draft tokens: {remedy}")
    inputs = {name for port in model.inputs for name in port.names}
    needed, task = {"input_ids"}, "text-generation-with-past"
    known = {*needed, "attention_mask", "position_ids", "beam_idx", FEATURES}
    if folder.is_encoder_decoder:
        needed = {"input_ids", HIDDEN_STATES}
        known = {*needed, "beam_idx", "cache_position", "encoder_attention_mask"}
        task = "text2text-generation-with-past or automatic-speech-recognition-with-past"
    if not needed <= inputs or not model.get_variables():
        how = f"ov-specdec export, or with optimum-cli export openvino --task {task}"
        raise ModelError(f"{folder.ir} is not a stateful decoder: export it with {how}")
    if unknown := [port.any_name for port in model.inputs if not port.names & known]:
        problem = f"{folder.ir} has an input '{unknown[0]}', which text decoders do not have"
        raise ModelError(f"{problem}: use a model exported with --task {task}")
    connect_positions(model)
    return model


def read_model(ir: Path) -> ov.Model:
    """An IR; `ModelError` if it cannot be read."""
    try:
        return openvino_core().read_model(ir)
    except RuntimeError as error:
        problem = f"{ir} cannot be read ({openvino_message(error)})"
        raise ModelError(f"{problem}: export the model again") from error


def pair_tokenizers(
    main: ExportedModel, draft: ExportedModel, pairing: PairingName = "auto"
) -> TokenizerPair:
    """The tokenizers of two models that need a pairing.

    Raises `TokenizerMismatchError` for an unsupported kind of tokenizer, for encoder-decoder
    models, whose encoders would need different ids, for a draft that drafts in parallel or reads
    hidden states, and if nothing is in common that a pairing needs.
    """
    problem = ""
    if main.folder.is_encoder_decoder:
        models = "draft and main are encoder-decoder models with different tokenizers"
        problem = f"{models}, which cannot be paired"
    elif draft.folder.projection is not None or draft.folder.mask_token is not None:
        reads_states = draft.folder.projection is not None
        does = "reads hidden states" if reads_states else "drafts in parallel"
        needed = "which needs the main model's tokenizer"
        problem = f"draft '{draft.folder.path}' {does}, {needed}"
    if problem:
        remedy = "use a draft of the same family, or {drafter}"
        raise TokenizerMismatchError(f"{problem}: {remedy}", drafter="suffix")
    pieces = PieceTokenizer(main.tokenizer), PieceTokenizer(draft.tokenizer)
    pair = TokenizerPair(*pieces, main.vocab_size, draft.vocab_size, pairing)
    pair.require_possible()
    return pair


def compare_models(main: ExportedModel, draft: ExportedModel) -> GuardReport:
    """The tokenizer guard's report on two models; `ModelError` if they are of two kinds."""
    if main.folder.is_encoder_decoder != draft.folder.is_encoder_decoder:
        kinds = "a decoder", "an encoder-decoder model"
        kind, other = kinds[::-1] if main.folder.is_encoder_decoder else kinds
        models = f"main '{main.folder.path}' is {kind}, draft '{draft.folder.path}' {other}"
        raise ModelError(f"{models}: give two of one kind")
    mask_token, width = draft.folder.mask_token, draft.logits_width
    if mask_token is not None and mask_token >= width:
        given = f"{draft.folder.path}/config.json gives the mask token {mask_token}"
        problem = f"{given} (pard_token or ptd_token_id), and the model has {width} tokens"
        raise ModelError(f"{problem}: correct it, or export the model again")
    report = compare_tokenizers(
        main.tokenizer, draft.tokenizer, main_width=main.logits_width, draft_width=width
    )
    if not main.folder.features and not draft.folder.features:
        return report
    differences = list_differences(main.folder.features, draft.folder.features)
    return GuardReport({**report.checks, FEATURES_CHECK: differences})


def pair_models(
    exported: Sequence[ExportedModel], pairing: PairingName | None
) -> tuple[GuardReport | None, TokenizerPair | None]:
    """The guard's report on main and draft, if there is one, and a pairing if tokenizers differ.

    Raises `TokenizerMismatchError` if they differ and no pairing is given, or none is possible.
    """
    if len(exported) == 1:
        return None, None
    main, draft = exported
    report = compare_models(main, draft)
    if draft.folder.num_bytes > main.folder.num_bytes:
        than = f"larger than the main model '{main.folder.path}', which makes decoding slower"
        message = f"the draft model '{draft.folder.path}' is {than}: swap the two"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    if pairing is None or report.compatible:
        report.require()
        return report, None
    return report, pair_tokenizers(main, draft, pairing)


def find_pairing(main: Path, draft: Path, pairing: PairingName | None) -> UsedPairing | None:
    """The pairing of the models of two folders; None if they have the same tokenizer."""
    _, found = pair_models([open_exported(main), open_exported(draft)], pairing)
    return found.used if found else None


def compare_checkpoints(
    main: str, draft: str, *, trust_remote_code: bool = False
) -> GuardReport | None:
    """The guard's report on the tokenizers that two checkpoints will have once exported.

    main, draft: Hub names or folders; only tokenizer files are downloaded. None if a tokenizer
    cannot be read: the export will report the same error. Ignores the width of the logits.
    """
    from transformers import AutoTokenizer  # as Optimum reads and writes them

    with TemporaryDirectory() as folder:
        copies = {Path(folder, "main"): main, Path(folder, "draft"): draft}
        try:
            for copy, name in copies.items():
                read = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
                read.save_pretrained(copy)
            a, b = map(load_tokenizer, copies)
        except Exception:  # of the Hub, a family, or a model's own code
            return None
        width = max(a.vocab_size, b.vocab_size)
        return compare_tokenizers(a, b, main_width=width, draft_width=width)
