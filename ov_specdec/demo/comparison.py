"""One prompt decoded plainly and then speculatively, with a comparison of both."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ov_specdec.baseline import common_prefix, plain_options
from ov_specdec.demo.cancellation import Cancellation
from ov_specdec.demo.models import describe
from ov_specdec.demo.run import Run
from ov_specdec.demo.settings import Settings
from ov_specdec.pipeline import SpeculativePipeline


@dataclass
class Comparison:
    """Both runs, so far.

    samples: whether the texts are independent samples. models: their description.
    """

    samples: bool = False
    models: str = ""
    plain: Run = field(default_factory=Run)
    speculative: Run = field(default_factory=Run)

    @property
    def ratio(self) -> float | None:
        """Tokens per second of speculative over plain decoding, once both are complete."""
        if self.plain.is_complete and self.speculative.is_complete:
            return self.speculative.tokens_per_second / self.plain.tokens_per_second
        return None

    @property
    def note(self) -> str:
        """Whether both texts are the same, and if not, why; empty until both runs end."""
        if self.ratio is None:
            return ""
        ids, others = self.plain.token_ids, self.speculative.token_ids
        if ids == others:
            return "Both texts are the same, token for token."
        if self.samples:
            return (
                "The texts differ, as they should: they are independent samples from the same "
                "distribution."
            )
        return (
            f"The texts differ after {common_prefix(ids, others)} tokens: the two most likely "
            "tokens were nearly tied there, and a pass over several tokens rounds differently from "
            "a pass over one. Start the demo with --batch-invariant true to make both the same."
        )


def compare(
    pipeline: SpeculativePipeline, settings: Settings, cancellation: Cancellation
) -> Iterator[Comparison]:
    """Decode plainly, then speculatively; yields the state after each piece of output.

    The runs are sequential, since they would otherwise compete for cores. Raises `OptionError` for
    an invalid prompt or setting.
    """
    options = settings.options()
    comparison = Comparison(settings.samples and settings.seed is None, describe(pipeline))
    runs = (
        (comparison.plain, plain_options(options)),
        (comparison.speculative, options),
    )
    for run, chosen in runs:
        if cancellation.is_set():
            run.outcome = "cancelled"
        else:
            chunks = pipeline.stream(settings.prompt, **chosen)
            cancellation.calls(chunks.cancel)
            for _ in run.follow(chunks, pipeline.tokenizer.decode):
                yield comparison
    yield comparison
