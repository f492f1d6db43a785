"""The tokens that the decoder of an encoder-decoder model starts with."""

from dataclasses import dataclass

from ov_specdec.errors import Option, OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.text.languages import find_language
from ov_specdec.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextToText:
    """How the decoder of an encoder-decoder model starts.

    decoder_start_token_id: its whole prompt. forced_bos_token_id: the first token of outputs,
    unless options give another; None: the model chooses it.
    """

    decoder_start_token_id: int
    forced_bos_token_id: int | None = None

    def complete(self, options: GenerationOptions, tokenizer: Tokenizer) -> GenerationOptions:
        """The options with the first token of the output.

        Raises `OptionError` for a language that the tokenizer does not have, and for options that
        need a decoder-only model.
        """
        if options.prompt_logprobs is not None:
            raise OptionError(
                Option("prompt_logprobs", options.prompt_logprobs),
                " cannot be given by an encoder-decoder "
                "model, whose prompt has no probabilities: leave it out",
            )
        forced = options.forced_bos_token_id
        if options.tgt_lang is not None:
            forced = find_language("tgt_lang", options.tgt_lang, tokenizer.spec)
        elif forced is None:
            forced = self.forced_bos_token_id
        return options.copy_with(forced_bos_token_id=forced, tgt_lang=None)
