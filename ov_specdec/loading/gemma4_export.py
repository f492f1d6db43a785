"""Optimum's command line for Gemma 4, which optimum-intel 2.1 knows and yet refuses.

Run as a file, like `child.py`: an environment for an export need not have this package.
"""

import runpy
from typing import Any


def admit() -> None:
    """Have Optimum export Gemma 4 with the transformers that knows it.

    It asks for transformers 5.5 or later, and for 5.0 or earlier, which it inherits from Gemma 3.
    And it traces layers with a window behind a whole window of cached tokens, all others behind
    fewer, though the masks of both are made for the same number.
    """
    from optimum.exporters.openvino import model_configs

    # Any version: the least one is looked at beside this.
    model_configs.Gemma4TextOpenVINOConfig.MAX_TRANSFORMERS_VERSION = "999"
    generator = model_configs.Gemma4DummyPastKeyValuesGenerator
    make = generator.__init__

    def make_alike(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.sliding_window = self.sequence_length

    generator.__init__ = make_alike


if __name__ == "__main__":
    admit()
    runpy.run_module("optimum.commands.optimum_cli", run_name="__main__", alter_sys=True)
