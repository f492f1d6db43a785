"""Models whose passes can be made to fail."""


class Flaky:
    """A compiled model whose passes fail when told to, after they have changed the KV cache.

    fails_in: passes of all of its requests after which one fails; None: none does.
    """

    def __init__(self, compiled):
        self._compiled = compiled
        self.fails_in = None

    def create_infer_request(self):
        return FlakyRequest(self._compiled.create_infer_request(), self)


class FlakyRequest:
    """An infer request of a `Flaky` model."""

    def __init__(self, request, model):
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
    """Have a runner fail; returns the `Flaky` that says when. It has run no pass yet."""
    if hasattr(runner, "_compiled"):  # stateful: it makes requests as it needs them
        runner._compiled = Flaky(runner._compiled)
        if hasattr(runner, "_request"):  # an encoder-decoder's, beside its first
            runner._request = FlakyRequest(runner._request, runner._compiled)
        return runner._compiled
    flaky = Flaky(None)
    for model in (runner._model, *runner._static.values()):
        model._request = FlakyRequest(model._request, flaky)
    return flaky
