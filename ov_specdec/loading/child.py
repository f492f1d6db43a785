"""Run a module as a program that ends with its parent.

`python child.py MODULE ARGUMENTS`, with a pipe as stdin whose other end the parent keeps open:
whenever the parent ends, even by SIGKILL, the system closes that end.
"""

import os
import runpy
import sys
import threading
from pathlib import Path


def main() -> None:
    """Run the module of the command line, and end with the parent."""
    pipe = os.dup(0)
    # Questions on stdin, such as transformers' before it runs a model's own code, must get an end
    # of file instead of waiting for an answer.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    # Python imports from the folder of this file, whose `profile` would hide the standard one.
    here = str(Path(__file__).resolve().parent)
    sys.path = [folder for folder in sys.path if folder != here]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with(pipe: int) -> None:
    """End this process without cleanup when the other end of the pipe is closed."""
    while os.read(pipe, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
