"""A tiny model whose template takes tools, and scripts that stand for its weights."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.server.engine import LocalEngine
from ov_specdec.text.tokenizer import Tokenizer
from tests.support.tiny import EOS, export, save_checkpoint, save_tokenizer

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "lab" / "benchmarks" / "prompts" / "tools.jinja"
VOCAB_SIZE = 2048
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Tokens of their own, as in Qwen 3."""

CONTEXT = 65_536
"""Tokens: what coding agents send before the first question takes over ten thousand."""

HEADER = "assistant\n"
Script = Callable[[str], str]
"""The answer to a rendered prompt, with markers."""


def make_agent_model(folder: Path) -> None:
    """A random llama in `folder / "main"`: tokens of English and code, and a long context."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    checkpoint, main = folder / "checkpoint", folder / "main"
    save_checkpoint("llama", checkpoint, width=VOCAB_SIZE)
    prompts = ROOT / "lab" / "benchmarks" / "prompts"  # which no edit of a page changes
    texts = [(prompts / name).read_text("utf-8") for name in ("heldout.jsonl", "tasks.jsonl")]
    save_tokenizer(checkpoint, sample="".join(texts), vocab_size=VOCAB_SIZE - len(MARKERS))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])
    tokenizer.save_pretrained(checkpoint)
    export(checkpoint, main)
    config = json.loads((main / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (main / "config.json").write_text(json.dumps(config))
    template = TEMPLATE.read_text(encoding="utf-8")
    for marker in ("<|im_start|>", "<|im_end|>"):
        template = template.replace(marker, EOS)
    (main / "chat_template.jinja").write_text(template, encoding="utf-8")


def called(name: str, **arguments: Any) -> str:
    """A call as that template writes it."""
    written = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


def follow(tokenizer: Tokenizer, script: Script) -> Callable[[list[int], Any], Any]:
    """A logits processor that stands for a model which answers as a script does."""

    def process(tokens: list[int], logits: Any) -> Any:
        prompt, _, begun = tokenizer.decode_all(tokens).rpartition(f"{EOS}{HEADER}")
        answer = script(prompt)
        rest = answer.removeprefix(begun) if answer.startswith(begun) else ""
        wanted = tokenizer.encode(rest)[0] if rest else tokenizer.eos_token_id
        logits[wanted] = logits.max() + 1e6
        return logits

    return process


@contextmanager
def scripted(pipeline: SpeculativePipeline, script: Script) -> Iterator[None]:
    """The logits of all requests of a server say what a script answers; all else is as it is."""
    complete, processors = LocalEngine.complete, [follow(pipeline.tokenizer, script)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            LocalEngine,
            "complete",
            lambda *args: complete(*args).copy_with(logits_processor=processors),
        )
        yield
