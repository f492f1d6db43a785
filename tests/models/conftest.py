"""What several files of tests of models use."""

import pytest

from ov_specdec import SpeculativePipeline


@pytest.fixture(scope="session")
def pipeline(tiny_pair):
    """The tiny pair in exact precision, for tests that leave it as it is."""
    with SpeculativePipeline(*tiny_pair, precision="exact") as made:
        yield made
