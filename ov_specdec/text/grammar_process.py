"""Compiles grammars, and tries them in processes that a hostile one may kill.

`TOKENIZER VOCAB_SIZE [EOS_ID ...]` reads a tokenizer once, and takes a socket for each grammar. A
copy of the process writes its id there, reads the grammar, and writes the error as JSON.
It runs as a file, since with -m Python would import from the current folder.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import POLLIN, poll
from subprocess import DEVNULL, Popen
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_SECONDS, MAX_BYTES = 2.0, 500 * 2**20
"""Limits of one grammar: processor time, and memory besides the tokenizer's."""

MAX_WAIT = 10
"""Seconds after which a trial ends that a busy machine gives less time."""

USUAL = 0.1
"""Seconds at the usual priority; then passes of the models come first."""

TOO_MUCH = f"it takes more than {MAX_SECONDS:g} s or {MAX_BYTES >> 20} MB to compile"

THREAD_STACK = 2 * 2**20
"""Bytes of a thread's stack where there is no limit."""

MAX_LEXER_STATES = 20_000
"""1 to 2 kB each. Two hundred tools with patterns and formats need 2,000."""

MAX_ITEMS = 10_000
"""Of the parser in a mask, which then takes 0.1 s at most. With 150,000 tokens, a schema of 300
optional properties needs 3,000, and an ambiguous grammar of sums 5,000."""

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

    limits = LLParserLimits(
        max_lexer_states=MAX_LEXER_STATES, step_max_items=MAX_ITEMS, verbose_errors=False
    )
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


def try_out(tokenizer: "LLTokenizer", asked: socket.socket) -> None:
    """Answer with the error of a grammar, unless that ends this process before."""
    asked.sendall(f"{os.getpid()}\n".encode())
    grammar = asked.makefile("rb").read().decode()  # its line ends matter
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
    signal.alarm(MAX_WAIT)
    asked.sendall(json.dumps(first_error(tokenizer, grammar)).encode())
    os._exit(0)


def main() -> None:
    """Try each grammar in a copy of this process, until the parent or its end closes stdin."""
    file, vocab_size, *eos_ids = sys.argv[1:]
    tokenizer = open_tokenizer(Path(file), int(vocab_size), list(map(int, eos_ids)))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    stdin = socket.socket(fileno=0)
    while files := socket.recv_fds(stdin, 1, 1)[1]:
        with socket.socket(fileno=files[0]) as asked:
            if not os.fork():
                try_out(tokenizer, asked)


class Trial:
    """Tries grammars in a child process. Thread-safe. Arguments: see `open_tokenizer`."""

    def __init__(self, file: Path, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._command = [sys.executable, __file__, str(file), *map(str, (vocab_size, *eos_ids))]
        self._lock = RLock()
        self._running: tuple[Popen[bytes], socket.socket] | None = None

    def __call__(self, grammar: str) -> str | None:
        """The error of a grammar; empty if there is none, None if the machine is too busy."""
        try:
            return self._ask(grammar)
        except OSError:  # by accident the process has ended, and the next grammar gets a new one
            return None

    def _ask(self, grammar: str) -> str | None:
        own, other = socket.socketpair()
        begin = monotonic()
        with own:
            own.settimeout(2 * MAX_WAIT)
            with other:
                socket.send_fds(self._open(), [b"."], [other.fileno()])
            lines = own.makefile()
            if not (pid := lines.readline()):
                return None
            own.sendall(grammar.encode())
            own.shutdown(socket.SHUT_WR)
            answers = poll()
            answers.register(own, POLLIN)
            if not answers.poll(1000 * USUAL):
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, int(pid), 10)
            if answer := lines.readline():
                return str(json.loads(answer))
            return TOO_MUCH if monotonic() - begin < MAX_WAIT else None

    def _open(self) -> socket.socket:
        """The standard input of the process, which by accident may have ended."""
        with self._lock:
            if self._running is None or self._running[0].poll() is not None:
                self.close()
                own, other = socket.socketpair()
                with other:
                    process = Popen(  # noqa: S603
                        self._command, stdin=other.fileno(), stdout=DEVNULL, stderr=DEVNULL
                    )
                self._running = process, own
            return self._running[1]

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._running is not None:
                process, stdin = self._running
                process.kill()
                process.wait()
                stdin.close()
                self._running = None


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules would hide others
    main()
