"""Log-probabilities of tokens in answers."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ov_specdec.openai.errors import Json
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.sampling.logits import TokenLogprobs, finite
from ov_specdec.text.detokenizer import CharacterStream, as_text
from ov_specdec.text.prompt import Prompt
from ov_specdec.text.tokenizer import Tokenizer


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[TokenLogprobs]) -> Json:
    """Log-probabilities of a chat: of each token, and of the most likely ones at its position."""

    def described(token_id: int, logprob: float) -> Json:
        piece = tokenizer.piece(token_id)
        return {"token": as_text(piece), "logprob": finite(logprob), "bytes": list(piece)}

    content = [
        {
            **described(token.token_id, token.logprob or 0.0),
            "top_logprobs": [described(*each) for each in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def prompt_offsets(prompt: Prompt, tokenizer: Tokenizer, adds: bool) -> list[int]:
    """For each token of a prompt, the characters of its text before it.

    adds: whether the tokenizer adds special tokens to a text.
    """
    if not isinstance(prompt, str):
        text = CharacterStream(tokenizer.piece_after, [])
        ids: list[int] = list(prompt)  # type: ignore[arg-type]
        return [*accumulate((len(text.push(token)) for token in ids), initial=0)][:-1]
    spans = tokenizer.encode_rendered(prompt, add_special_tokens=adds).offsets
    ends = accumulate((end for _, end in spans), max, initial=0)
    # Tokens that the tokenizer adds have an empty span, wherever they are.
    return [start if start < end else last for (start, end), last in zip(spans, ends, strict=False)]


class CompletionScores:
    """The log-probabilities of one completion, each once the text before its token is sent.

    Until then a stop string may end the text before it. prompt_text: what is sent of the prompt.
    """

    def __init__(
        self, options: GenerationOptions, tokenizer: Tokenizer, prompt: Prompt, prompt_text: str
    ) -> None:
        self._options, self._tokenizer, self._prompt = options, tokenizer, prompt
        self._num_before = self._num_sent = len(prompt_text)
        self._tokens: list[TokenLogprobs] = []
        self._offsets: list[int] = []

    def add(self, new: Chunk | GenerationResult) -> Json | None:
        """The next ones; None if there are none. new: what is sent together with them."""
        if self._options.logprobs is None:
            return None
        if new.prompt_logprobs:
            adds = self._options.add_special_tokens is not False
            self._offsets += prompt_offsets(self._prompt, self._tokenizer, adds)
        self._offsets += [self._num_before + token.offset for token in new.logprobs]
        self._tokens += [*new.prompt_logprobs, *new.logprobs]
        self._num_sent += len(new.text)
        has_ended = new.finish_reason is not None
        count = len(self._tokens) if has_ended else bisect_right(self._offsets, self._num_sent)
        tokens, self._tokens = self._tokens[:count], self._tokens[count:]
        offsets, self._offsets = self._offsets[:count], self._offsets[count:]
        if not tokens:
            return None
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [
                t.logprob if t.logprob is None else finite(t.logprob) for t in tokens
            ],
            "top_logprobs": [self._top_by_name(token) for token in tokens],
            "text_offset": [min(offset, self._num_sent) for offset in offsets],
        }

    def _name(self, token_id: int) -> str:
        """The text of a token; for a part of a character it begins with "bytes:", as OpenAI's."""
        piece = self._tokenizer.piece(token_id)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return f"bytes:{as_text(piece)}"

    def _top_by_name(self, token: TokenLogprobs) -> dict[str, float] | None:
        """The most likely tokens at a position, and the chosen one.

        Of several with the same text, the chosen one or else the most likely has the text as its
        name, and others their id, as in vLLM. The first token of a prompt has none.
        """
        if token.logprob is None:
            return None
        own = self._name(token.token_id)
        found: dict[str, float] = {}
        for token_id, logprob in dict((*token.top, (token.token_id, token.logprob))).items():
            name = self._name(token_id)
            if token_id != token.token_id and (name == own or name in found):
                name = f"token_id:{token_id}"
            found[name] = finite(logprob)
        return found
