"""What peers with a draft model want of a pair."""

from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.setup import Setup


def require_same_tokenizer(setup: Setup) -> None:
    """Raise `BenchmarkError` for a pair whose tokenizers differ."""
    if setup.pairing is not None:
        raise BenchmarkError(
            f"it has no pairing='{setup.pairing}', which draft and main need for their "
            "tokenizers differ"
        )
