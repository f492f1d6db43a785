"""Models that several test files use, exported once per run."""

import pytest

from tests.tiny import export, make_pair, save_checkpoint


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory):
    """Folders of a tiny random llama and of a draft that agrees with it sometimes."""
    return make_pair("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def wide_draft(tmp_path_factory):
    """Folder of the same draft with logits padded to another width."""
    folder = tmp_path_factory.mktemp("wide")
    save_checkpoint("llama", folder / "checkpoint", noise=0.1, width=384)
    return export(folder / "checkpoint", folder / "draft")
