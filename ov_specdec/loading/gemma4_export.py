"""Optimum's command line, changed so that it exports Gemma 4.

optimum-intel 2.1 knows the family, but no version of transformers meets its limits. Runs as a
file, like `child.py`, because the environment of an export may lack this package.
"""

import runpy
from typing import Any


def allow_gemma4() -> None:
    """Remove what keeps Optimum from exporting Gemma 4.

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


if __name__ == "__main__":
    allow_gemma4()
    runpy.run_module("optimum.commands.optimum_cli", run_name="__main__", alter_sys=True)
