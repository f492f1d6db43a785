"""Text to token ids and back, with the tokenizer that was exported beside the model."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import processors
from tokenizers.pre_tokenizers import ByteLevel

from ov_specdec.errors import ModelError, Option, OptionError, SpecdecError, shorten, suggest
from ov_specdec.files import read_json, read_text
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.chat_template import ChatTemplate, Message, parse
from ov_specdec.text.detokenizer import REPLACEMENT
from ov_specdec.text.generated_tokens import EncodedText

if TYPE_CHECKING:
    from transformers import BatchEncoding

LONG_TEXT = 10_000
"""Characters that take some ms to encode. Shorter texts need no thread pool, as batches do."""

BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")

ALPHABET = frozenset(ByteLevel.alphabet())
CODES = bytes(sorted(range(256), key=lambda code: chr(code) not in ALPHABET)).decode("latin-1")
BYTE_OF = str.maketrans("".join(sorted(ALPHABET)), CODES)
"""The byte of each character in a byte-level vocabulary: printable characters of Latin-1 are their
own bytes, those from 256 on the other bytes in order."""


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
        # Spans of tokens begin with their spaces, which byte-level post-processors cut off.
        processor = self._backend.post_processor
        for part in processor if isinstance(processor, processors.Sequence) else [processor]:
            if hasattr(part, "trim_offsets"):
                part.trim_offsets = False
        settings = path / "tokenizer_config.json"
        self._settings = read_json(settings) if settings.is_file() else {}
        given = {k: v for k, v in self._settings.items() if k.endswith("_token")}
        # A text, or an object that holds it.
        names = {k: v.get("content") if isinstance(v, dict) else v for k, v in given.items()}
        self._roles = {role: name for role, name in names.items() if isinstance(name, str)}
        """The names of special tokens, by roles such as "eos_token"."""
        self._bytes_reader = bytes_reader(self.spec)
        self._templates = (
            self._read_chat_templates()
            if chat_template is None
            else {"default": _read_chat_template(chat_template)}
        )
        self.chat_template: str | None = self._templates.get("default")
        """The model's chat template, if it has one."""

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

    @cached_property
    def full_spec(self) -> dict[str, Any]:
        """`spec` as the library reads it, with defaults for what the file omits."""
        return dict(json.loads(self._backend.to_str()))

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id of a token, added tokens included."""
        return 1 + max(self.vocab.values())

    @property
    def vocab(self) -> dict[str, int]:
        """Every token's id, added tokens included."""
        vocab: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return vocab

    @cached_property
    def special_tokens(self) -> dict[int, str]:
        """The names of all special tokens, by id."""
        added = self.spec.get("added_tokens", ())
        return {token["id"]: token["content"] for token in added if token["special"]}

    @property
    def eos_token_id(self) -> int | None:
        """The id of the end-of-sequence token, if the tokenizer names one."""
        name = self._roles.get("eos_token")
        return None if name is None else self._backend.token_to_id(name)

    def __len__(self) -> int:
        return self.vocab_size

    def encode(
        self, text: str, src_lang: str | None = None, *, add_special_tokens: bool = True
    ) -> list[int]:
        """The ids of a text, by default with the special tokens that the model expects.

        src_lang: the language of the text; None: the one that the file was saved with. Raises
        `OptionError` if the tokenizer does not have it, or has no token for the source language.
        """
        return self.encode_rendered(text, src_lang, add_special_tokens=add_special_tokens).ids

    def encode_rendered(
        self, text: str, src_lang: str | None = None, *, add_special_tokens: bool = False
    ) -> EncodedText:
        """The ids and spans of a text, by default of one that contains the special tokens.

        Tokens that are added have empty spans. Those before the text are not added to one that
        begins with them.
        """
        if len(text) < LONG_TEXT:
            encoded = self._backend.encode(text, add_special_tokens=add_special_tokens)
        else:  # as a batch: `encode` stops other threads meanwhile
            [encoded] = self._backend.encode_batch([text], add_special_tokens=add_special_tokens)
        ids, added = encoded.ids, encoded.special_tokens_mask
        if src_lang is not None:
            saved = self._saved_language(src_lang)
            wanted = self.find_language("src_lang", src_lang)
            # A language in the text itself stays.
            pairs = zip(ids, added, strict=True)
            ids = [wanted if token == saved and is_added else token for token, is_added in pairs]
        num_before = added.index(0) if 0 in added else 0
        start = num_before if ids[:num_before] == ids[num_before : 2 * num_before] else 0
        return EncodedText(text, ids[start:], encoded.offsets[start:])

    def render_chat(self, messages: Sequence[Message], options: GenerationOptions) -> str:
        """Render messages with the chat template.

        Raises `OptionError` for what the template cannot render.
        """
        template = self._templates.get("tool_use") if options.tools else None
        template = template or self.chat_template or ""
        return ChatTemplate(template, self._roles).render(messages, options)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`, by default without special tokens."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

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

    def piece_after(self, before: int | None, token_id: int) -> bytes:
        """The bytes that a token adds to a text. before: the token before it; None: it begins it.

        Decoders drop a space at the beginning, and some write a token by its neighbors.
        """
        if before is None and REPLACEMENT not in (first := self.decode_all([token_id])):
            return first.encode()
        if before is None or self._bytes_reader is not None:
            return self.piece(token_id)
        return self.decode_all([before, token_id]).removeprefix(self.decode_all([before])).encode()

    def first_tokens(self, count: int) -> frozenset[int]:
        """The ids of `count` tokens: all that no merge makes, and the first that merges make.

        The former are special and added tokens, bytes and characters. BPE merges what is most
        common first, so that no text has to be counted, as for FR-Spec (arXiv 2502.14856). Raises
        `OptionError` for a tokenizer without merges, and a count that it does not allow.
        """
        ranks, file = dict[str, int](), self.path / "tokenizer.json"
        for rank, pair in enumerate(read_merges(self.spec["model"].get("merges", ()))):
            ranks.setdefault("".join(pair), rank)
        order = sorted((ranks.get(name, -1), token) for name, token in self.vocab.items())
        least, most = sum(rank < 0 for rank, _ in order), len(order) - 1
        if not least <= count <= most:
            raise OptionError(
                f"{{draft_vocabulary}} must be from {least}, the special tokens and characters of "
                f"{file}, to {most}, less than all of its tokens: change it, or leave it out"
                if ranks
                else "{draft_vocabulary} needs the merges of a BPE tokenizer, and "
                f"{file} has none: leave it out",
                draft_vocabulary=count,
            )
        return frozenset(token for _, token in order[:count])

    def find_language(self, option: str, name: str) -> int:
        """The id of a language's token; `OptionError` if there is none. option: names it."""
        added: dict[str, int] = {t["content"]: t["id"] for t in self.spec.get("added_tokens", ())}
        # Marks, such as "</s>" and "[MASK]", have brackets; languages: "fr_XX" or "__fr__".
        known = {content: token for content, token in added.items() if content[:1] not in "<["}
        if name not in known:
            hint = suggest(name, known, f"there are: {', '.join(known)[:200] or 'none'}")
            raise OptionError(
                f"{{option}} is not known to the model's tokenizer: {hint}",
                option=Option(option, name),
            )
        return known[name]

    def _saved_language(self, src_lang: str) -> int:
        """The token of the language with which the tokenizer was saved, which it adds to texts."""
        marked = self._roles.values()
        marks = [t for t in self.encode("") if self._backend.id_to_token(t) not in marked]
        if len(marks) != 1:
            raise OptionError(
                f"{{src_lang}} has no effect with {self.path}, whose tokenizer marks no source "
                "language: leave it out",
                src_lang=src_lang,
            )
        return marks[0]

    def _read_chat_templates(self) -> dict[str, str]:
        """Chat templates by name; one without a name is "default"."""
        file = self.path / "chat_template.jinja"
        more = sorted((self.path / "additional_chat_templates").glob("*.jinja"))
        if file.is_file():
            files = {"default": file, **{path.stem: path for path in more}}
            return {name: read_text(path) for name, path in files.items()}
        templates = self._settings.get("chat_template")
        if not isinstance(templates, list):  # of several, by name
            templates = [] if templates is None else [{"name": "default", "template": templates}]
        named = {entry["name"]: entry["template"] for entry in templates}
        for template in named.values():
            if not isinstance(template, str):
                raise ModelError(
                    f"{self.path}/tokenizer_config.json has the chat template {template!r}, which "
                    "is no text: repair it"
                )
        return named


def read_merges(given: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The pairs of BPE's merges, which files write as "a b" or ["a", "b"]."""
    return [tuple(each.split(" ", 1) if isinstance(each, str) else each) for each in given]


def bytes_reader(spec: Mapping[str, Any]) -> Callable[[str], bytes] | None:
    """A function from a token's name to its bytes; the name of an added token is its text.

    spec: the content of tokenizer.json. None for a tokenizer that is neither byte-level BPE nor
    sentencepiece.
    """
    added = {token["content"] for token in spec["added_tokens"]}
    parts = [spec.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    kinds = {*re.findall(r'"type": "(\w+)"', json.dumps(parts))}  # of their own parts too
    if "ByteLevel" in kinds:
        # One byte for each character; a token with any other character is plain text.
        return lambda token: (
            token.translate(BYTE_OF).encode("latin-1")
            if token not in added and ALPHABET.issuperset(token)
            else token.encode()
        )
    return _sentencepiece if kinds & {"Metaspace", "ByteFallback"} else None


def _sentencepiece(token: str) -> bytes:
    found = BYTE_TOKEN.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else token.replace("\u2581", " ").encode()


def load_tokenizer(path: Path, chat_template: str | Path | None = None) -> Tokenizer:
    """The tokenizer of a model folder; `ModelError` if it cannot be read.

    chat_template: a file that replaces the folder's; `OptionError` if it cannot be read.
    """
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
    from jinja2 import TemplateSyntaxError

    try:
        template = read_text(file)
        parse(template)
    except (OSError, UnicodeDecodeError, TemplateSyntaxError) as error:
        raise OptionError(
            f"{{chat_template}} cannot be read ({error}): give a Jinja file",
            chat_template=str(file),
        ) from error
    return template
