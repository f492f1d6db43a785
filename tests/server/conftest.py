"""The server of the tiny chat model that most tests ask."""

import pytest

from ov_specdec import SpeculativePipeline
from tests.support.server import serving


@pytest.fixture(scope="session")
def pipeline(chat_pair):
    """For tests that leave it as it is. Nothing is left to be done in idle time."""
    with SpeculativePipeline(*chat_pair, precision="exact", num_threads=1) as made:
        made.prepare(seconds=0.2)
        made.check_batch_invariant()
        yield made


@pytest.fixture(scope="module")
def server(pipeline):
    with serving(pipeline) as running:
        yield running
