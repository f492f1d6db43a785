"""Models whose passes can be made to fail."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Flaky:
    """Has passes of its requests fail when told to, after they have changed the KV cache.

    fails_in: passes of all of its requests after which one fails; None: none does.
    """

    fails_in: int | None = None


class FlakyRequest:
    """An infer request of a `Flaky` model."""

    def __init__(self, request: Any, model: Flaky):
        self._request = request
        self._model = model

    def __getattr__(self, name):
        return getattr(self._request, name)

    def infer(self, *args, **kwargs):
        outputs = self._request.infer(*args, **kwargs)
        if self._model.fails_in is not None:
            self._model.fails_in -= 1
            if self._model.fails_in < 0:
                self._model.fails_in = None
                raise RuntimeError("the device is gone")
        return outputs


def make_flaky(runner):
    """Have a paged runner fail; returns the `Flaky` that says when."""
    flaky = Flaky()
    for model in (runner._model, *runner._static.values()):
        model._request = FlakyRequest(model._request, flaky)
    return flaky
