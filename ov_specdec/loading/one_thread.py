"""Models compiled for one CPU thread, with passes that raise their errors.

On one thread, OpenVINO 2026.4 drops the error of `InferRequest.infer`: outputs keep the values of
the previous pass. It also runs the failed pass again before each later one, even in models that are
compiled after its memory was freed. `start_async` has neither fault, and takes 0.01 ms longer.
"""

from typing import Any

import openvino as ov

THREADS = "INFERENCE_NUM_THREADS"


def with_errors(compiled: ov.CompiledModel) -> ov.CompiledModel:
    """The same compiled model of a CPU, with passes that raise their errors."""
    return OneThreadModel(compiled) if compiled.get_property(THREADS) == 1 else compiled


class OneThreadModel(ov.CompiledModel):  # type: ignore[misc]
    """A model compiled for one thread."""

    def create_infer_request(self) -> ov.InferRequest:
        """A request, whose `infer` raises errors."""
        return OneThreadRequest(super().create_infer_request())


class OneThreadRequest(ov.InferRequest):  # type: ignore[misc]
    """A request of a model on one thread."""

    def infer(
        self, inputs: Any = None, share_inputs: bool = False, share_outputs: bool = False
    ) -> Any:
        """Run a pass; outputs by port, views of tensors if `share_outputs`."""
        self.start_async(inputs, share_inputs=share_inputs)
        self.wait()
        if not share_outputs:
            return self.results
        return {port: self.get_tensor(port).data for port in self.model_outputs}
