"""Compiles grammars, and tries them in processes that a hostile one may kill.

`TOKENIZER VOCAB_SIZE [EOS_ID ...]` reads grammars, and prints the error of each, all as lines of
JSON. It runs as a file, since with -m Python would import from the current folder.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_SECONDS, MAX_BYTES = 2.0, 500 * 2**20
"""Limits of one grammar: processor time, and memory besides the tokenizer's."""

TOO_MUCH = f"it takes more than {MAX_SECONDS:g} s or {MAX_BYTES >> 20} MB to compile"

THREAD_STACK = 2 * 2**20
"""Bytes of a thread's stack where there is no limit."""

MAX_LEXER_STATES = 20_000
"""1 to 2 kB each. Two hundred tools with patterns and formats need 2,000."""

FIRST = 8
"""Tokens that are tried: some grammars compile, and fail at the first ones."""


def open_tokenizer(file: Path, vocab_size: int, eos_ids: Sequence[int]) -> "LLTokenizer":
    """The tokenizer of a tokenizer.json; `ValueError` for kinds that llguidance does not have."""
    from llguidance import LLTokenizer

    spec = file.read_text(encoding="utf-8")
    return LLTokenizer(spec, n_vocab=vocab_size, eos_token=list(eos_ids) or None)


def new_matcher(tokenizer: "LLTokenizer", grammar: str) -> "LLMatcher":
    """A matcher of an empty text. Copies would save 0.2 to 0.7 ms, but share the lexer's limits."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
    return LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def first_error(tokenizer: "LLTokenizer", grammar: str) -> str:
    """The error of a grammar, or of a text's first tokens and their rollback; empty without one."""
    matcher, length = new_matcher(tokenizer, grammar), 0
    while not matcher.is_error() and length < FIRST:
        fits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        fits[tokenizer.eos_tokens] = 0
        # None, or a special one that a literal spells: `Grammar` takes others.
        if not fits.any() or not matcher.validate_tokens([int(fits.argmax())]):
            break
        matcher.consume_token(int(fits.argmax()))
        length += 1
    matcher.rollback(length)
    return str(matcher.get_error()).partition("\n<")[0].strip()


def try_out(tokenizer: "LLTokenizer", grammar: str) -> None:
    """Print the error of a grammar, unless that ends this process before."""
    os.nice(10)  # passes of the models come first
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        most = pages * resource.getpagesize() + MAX_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Half of a thread's, so that what survives here also does within calls of the parent.
        stack, hard = resource.getrlimit(resource.RLIMIT_STACK)
        stack = THREAD_STACK if stack == resource.RLIM_INFINITY else stack
        resource.setrlimit(resource.RLIMIT_STACK, (stack // 2, hard))
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)  # its signal ends native code too
    sys.stdout.write(json.dumps(first_error(tokenizer, grammar)) + "\n")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Try each grammar in a copy of this process, until the parent or its end closes the pipe."""
    file, vocab_size, *eos_ids = sys.argv[1:]
    tokenizer = open_tokenizer(Path(file), int(vocab_size), list(map(int, eos_ids)))
    for line in sys.stdin:
        if not (copy := os.fork()):
            try_out(tokenizer, json.loads(line))
        if os.waitpid(copy, 0)[1]:
            sys.stdout.write(json.dumps(TOO_MUCH) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules would hide others
    main()
