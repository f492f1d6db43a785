"""Optimum's command line as a process that ends with its parent: `FILE FAMILY ARGUMENTS`.

It runs as a file, since with -m Python would import from the current folder.
"""

import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any


def allow_gemma4() -> None:
    """Remove what keeps Optimum, up to 2.2, from exporting Gemma 4.

    It requires transformers 5.5 or later, and 5.0 or earlier, a limit inherited from Gemma 3. Its
    sample inputs have a whole window of cached tokens for layers with a window, and fewer for the
    others, but the model makes both masks for the same number.
    """
    from optimum.exporters.openvino import model_configs

    # Any version: Optimum checks the minimum separately.
    model_configs.Gemma4TextOpenVINOConfig.MAX_TRANSFORMERS_VERSION = "999"
    generator = model_configs.Gemma4DummyPastKeyValuesGenerator
    make = generator.__init__

    def make_alike(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.sliding_window = self.sequence_length

    generator.__init__ = make_alike


def adjust_groups() -> None:
    """Have smaller groups in layers whose inputs the default size does not divide.

    Optimum's default options of int4 weights ignore its argument for that.
    """
    from optimum.intel.openvino import configuration

    configuration._DEFAULT_4BIT_WQ_CONFIG["group_size_fallback"] = "adjust"


def main() -> None:
    """Run Optimum's command line."""
    del sys.path[0]  # this folder, whose `profile` hides the standard one
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # as in `ov_specdec`
    # The parent keeps the other end of the pipe open, and the system closes it at its end.
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
    # Questions, such as transformers' before it runs a model's own code, get no answer.
    sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.argv.pop(1) == "gemma4_text":
        allow_gemma4()
    if "--group-size-fallback" in sys.argv:
        adjust_groups()
    runpy.run_module("optimum.commands.optimum_cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
