"""Text to token ids and back, with the tokenizer that was exported beside the model."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Encoding
from tokenizers import Tokenizer as BackendTokenizer

from ov_specdec.errors import ModelError, Option, OptionError, SpecdecError, shorten
from ov_specdec.files import read_json
from ov_specdec.foreign_options import OF_TOKENIZERS, name_missing
from ov_specdec.options import GenerationOptions
from ov_specdec.text.chat import render_chat
from ov_specdec.text.generated_tokens import EncodedText
from ov_specdec.text.languages import find_language
from ov_specdec.text.messages import Message
from ov_specdec.text.token_bytes import bytes_reader

if TYPE_CHECKING:
    from transformers import BatchEncoding

MARIAN_FILE = "source.spm"
"""File of a Marian tokenizer, which the `tokenizers` library does not support."""


LONG = 10_000
"""Characters that take some ms to encode. Shorter texts need no thread pool, as batches do."""


@name_missing(OF_TOKENIZERS)
class Tokenizer:
    """The tokenizer.json and chat template of a folder. chat_template: a file that replaces it.

    The `tokenizers` library reads the file directly: the AutoTokenizer of transformers would
    import torch wherever that is installed.
    """

    def __init__(self, path: Path, chat_template: str | Path | None = None) -> None:
        self.path = path
        self.spec = read_json(path / "tokenizer.json")
        """The content of tokenizer.json."""
        self._backend = BackendTokenizer.from_file(str(path / "tokenizer.json"))
        # Both may be left over from training, and would change the ids of a prompt.
        self._backend.no_truncation()
        self._backend.no_padding()
        settings = path / "tokenizer_config.json"
        self._settings = read_json(settings) if settings.is_file() else {}
        self._templates = (
            self._read_chat_templates()
            if chat_template is None
            else {"default": _read_chat_template(chat_template)}
        )
        if chat_template is not None:
            self._check_rendering(chat_template)

    def __call__(self, text: str, return_tensors: str | None = None) -> "BatchEncoding":
        """As in transformers: `input_ids` and `attention_mask` of a text.

        return_tensors: "np" or "pt" for arrays or tensors with a batch axis; None: lists.
        Raises `OptionError` for anything but one text.
        """
        from transformers import BatchEncoding  # takes long to import

        if not isinstance(text, str):
            raise OptionError(f"{shorten(text)} is not a text: give one text at a time")
        ids = self.encode(text)
        content = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        is_batch = return_tensors is not None
        return BatchEncoding(content, tensor_type=return_tensors, prepend_batch_axis=is_batch)

    @property
    def chat_template(self) -> str | None:
        """The model's chat template, if it has one."""
        return self._templates.get("default")

    @cached_property
    def full_spec(self) -> dict[str, Any]:
        """`spec` as the library reads it, with defaults for what the file omits."""
        spec: dict[str, Any] = json.loads(self._backend.to_str())
        return spec

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id of a token, added tokens included."""
        return 1 + max(self.vocab.values())

    @cached_property
    def max_token_length(self) -> int:
        """Maximum characters of a token."""
        return max(map(len, self.vocab))

    @property
    def vocab(self) -> dict[str, int]:
        """Every token's id, added tokens included."""
        vocab: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return vocab

    @property
    def eos_token_id(self) -> int | None:
        """The id of the end-of-sequence token, if the tokenizer names one."""
        name = _token_text(self._settings.get("eos_token"))
        return None if name is None else self._backend.token_to_id(name)

    def __len__(self) -> int:
        return self.vocab_size

    def encode(
        self, text: str, src_lang: str | None = None, *, add_special_tokens: bool = True
    ) -> list[int]:
        """The ids of a plain text, by default with the special tokens that the model expects.

        src_lang: the language of the text; None: the one that the file was saved with. Raises
        `OptionError` if the tokenizer does not have it, or has no token for the source language.
        """
        encoded = self._encode(text, add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        if src_lang is None:
            return ids
        saved, wanted = (
            self._saved_language(src_lang),
            find_language("src_lang", src_lang, self.spec),
        )
        added = encoded.special_tokens_mask  # so that a language in the text itself stays
        return [
            wanted if is_added and token == saved else token
            for token, is_added in zip(ids, added, strict=True)
        ]

    def render_chat(self, messages: Sequence[Message], options: GenerationOptions) -> str:
        """Render messages with the chat template.

        Raises `OptionError` for what the template refuses, `ModelError` if it cannot be rendered.
        """
        special_tokens = {
            name: text
            for name, value in self._settings.items()
            if name.endswith("_token") and (text := _token_text(value)) is not None
        }
        template = self._templates.get("tool_use") if options.tools else None
        template = template or self.chat_template or ""
        return render_chat(template, messages, special_tokens, options)

    def encode_rendered(self, text: str) -> EncodedText:
        """The ids of a rendered chat template, which contains the special tokens."""
        encoded = self._encode(text, add_special_tokens=False)
        return EncodedText(text, encoded.ids, encoded.offsets)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`, by default without special tokens."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text of `ids` with special tokens."""
        return self.decode(ids, skip_special_tokens=False)

    def piece(self, token_id: int) -> bytes:
        """The bytes of a token, which may be part of a character; the name of a special token."""
        token = self._backend.id_to_token(token_id)
        if token is None:  # a padded column of the logits
            return b""
        read = self._bytes_reader
        return self.decode_all([token_id]).encode() if read is None else read(token)

    def _encode(self, text: str, *, add_special_tokens: bool) -> Encoding:
        """Encode a text. A long one as a batch: `encode` stops other threads meanwhile."""
        if len(text) < LONG:
            return self._backend.encode(text, add_special_tokens=add_special_tokens)
        return self._backend.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    @cached_property
    def _bytes_reader(self) -> Callable[[str], bytes] | None:
        return bytes_reader(self.spec)

    def _saved_language(self, src_lang: str) -> int:
        """The language token that the saved tokenizer adds to every text."""
        roles = {_token_text(v) for name, v in self._settings.items() if name.endswith("_token")}
        marks = [t for t in self.encode("") if self._backend.id_to_token(t) not in roles]
        if len(marks) != 1:
            raise OptionError(
                Option("src_lang", src_lang),
                f" has no effect with {self.path}, whose tokenizer marks no source language: "
                "leave it out",
            )
        return marks[0]

    def _check_rendering(self, file: str | Path) -> None:
        """Refuse a given template that cannot be rendered; it may refuse a conversation."""
        try:
            self.render_chat([{"role": "user", "content": "x"}], GenerationOptions())
        except ModelError as error:
            reason = f" cannot be rendered ({error.__cause__}): repair it"
            raise OptionError(Option("chat_template", str(file)), reason) from error
        except OptionError:
            pass

    def _read_chat_templates(self) -> dict[str, str]:
        """Chat templates by name; one without a name is "default"."""
        file = self.path / "chat_template.jinja"
        more = sorted((self.path / "additional_chat_templates").glob("*.jinja"))
        if file.is_file():
            files = {"default": file, **{path.stem: path for path in more}}
            return {name: path.read_text(encoding="utf-8") for name, path in files.items()}
        templates = self._settings.get("chat_template")
        if isinstance(templates, list):  # several, by name
            templates = {entry["name"]: entry["template"] for entry in templates}
        elif templates is not None:
            templates = {"default": templates}
        for template in (templates or {}).values():
            if not isinstance(template, str):
                raise ModelError(
                    f"{self.path}/tokenizer_config.json has the chat template {template!r}, which "
                    "is no text: repair it"
                )
        return templates or {}


def load_tokenizer(path: Path, chat_template: str | Path | None = None) -> Tokenizer:
    """The tokenizer of a model folder; `ModelError` if it cannot be read.

    chat_template: a file that replaces the folder's; `OptionError` if it cannot be read.
    """
    if (path / MARIAN_FILE).is_file() and not (path / "tokenizer.json").is_file():
        raise ModelError(
            f"{path} holds no tokenizer.json, which Marian's tokenizer cannot be saved as: use a "
            "model with another one, such as T5, mBART or NLLB"
        )
    if not (path / "tokenizer.json").is_file():
        raise ModelError(
            f"{path} holds no tokenizer.json: export the model again with ov-specdec export, which "
            "saves a fast tokenizer"
        )
    try:
        return Tokenizer(path, chat_template)
    except SpecdecError:
        raise
    except Exception as error:  # the library raises bare Exception for a file it cannot read
        raise ModelError(f"{path}/tokenizer.json cannot be read ({error}): export again") from error


def _read_chat_template(file: str | Path) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise OptionError(
            Option("chat_template", str(file)), f" cannot be read ({error}): give a Jinja file"
        ) from error


def _token_text(value: Any) -> str | None:
    """The text of a special token, which is a string or an object in the files."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
