"""One core for each test process, no telemetry, and the models that several test files use."""

import os
import shutil
import signal
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import agents, tiny_encoder_decoder, tiny_whisper
from tests.support.chats import PLAIN
from tests.support.cores import keep_to_one_core
from tests.support.folders import changed
from tests.support.tiny import ARCHITECTURES, MASK, TYPICAL, MadeModels, Shelf, make_pair
from tests.support.tiny_encoder_decoder import make_encoder_decoder
from tests.support.tiny_whisper import make_whisper


def pytest_configure(config):
    # OpenVINO's telemetry forks a process for each of the dozens of events of an export, which
    # takes longer than the export. On Jenkins it is off; "CI" would change Hypothesis too.
    os.environ.setdefault("JENKINS_URL", "none")
    # Profiles and cost curves are the user's: tests keep their own, from one run to the next, so
    # that passes are timed once for each model.
    os.environ["XDG_CACHE_HOME"] = str(config.cache.mkdir("user-cache"))
    # A shell that runs the tests in the background has them ignore interrupts, and all they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # No test fails because the machine is busy.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")
    worker = getattr(config, "workerinput", None)  # of `pytest -n`
    if worker is not None:
        keep_to_one_core(int(worker["workerid"].removeprefix("gw")))


@pytest.fixture(scope="session", autouse=True)
def _short_measurements():
    """Of the costs of passes, which take two seconds for each pair: tests want no exact ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ov_specdec.planning.kept_costs.MEASURING_SECONDS", 0.2)
        yield


@pytest.fixture(scope="session")
def shelf(pytestconfig):
    """Exported models, kept in pytest's cache: `pytest --cache-clear` makes them anew."""
    return Shelf(pytestconfig.cache.mkdir("exported"))


@pytest.fixture(scope="session")
def tiny_pair(shelf, tmp_path_factory):
    """Folders of a tiny random llama and of a draft that agrees with it sometimes."""
    target = tmp_path_factory.mktemp("llama") / "pair"
    pair = MadeModels(shelf.copy("llama", lambda folder: make_pair("llama", folder), target))
    return pair.main, pair.draft


@pytest.fixture(scope="session")
def parallel_pair(tiny_pair, tmp_path_factory):
    """The tiny pair, its draft told that it drafts in one pass."""
    main, draft = tiny_pair
    config = {"pard_token": MASK}
    return main, changed(draft, tmp_path_factory.mktemp("parallel") / "draft", config=config)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name in TYPICAL else pytest.mark.deep)
        for name in ARCHITECTURES
    ],
)
def architecture(request):
    """The name of an architecture, each in turn; `deep` where it is not a typical one."""
    return request.param


@pytest.fixture(scope="module")
def pair(architecture, shelf, tmp_path_factory):
    """A tiny random main and draft of an architecture."""
    target = tmp_path_factory.mktemp(architecture) / "pair"
    return MadeModels(shelf.copy(architecture, lambda f: make_pair(architecture, f), target))


@pytest.fixture(scope="session")
def chat_pair(tiny_pair, tmp_path_factory):
    """The tiny pair, its main with a chat template."""
    main = shutil.copytree(tiny_pair[0], tmp_path_factory.mktemp("chat") / "main")
    (main / "chat_template.jinja").write_text(PLAIN)
    return main, tiny_pair[1]


@pytest.fixture(scope="session")
def agent_model(shelf, tmp_path_factory):
    """Folder of a tiny random model with a long context and a template that takes tools."""
    sources, target = [Path(agents.__file__), agents.TEMPLATE], tmp_path_factory.mktemp("agents")
    return shelf.copy("agents", agents.make_agent_model, target / "model", *sources) / "main"


@pytest.fixture(scope="session")
def whisper(shelf, tmp_path_factory):
    """A tiny random Whisper, and a draft that shares its encoder."""
    target = tmp_path_factory.mktemp("whisper") / "models"
    sources = [Path(module.__file__) for module in (tiny_whisper, tiny_encoder_decoder)]
    return MadeModels(shelf.copy("tiny-whisper", make_whisper, target, *sources))


@pytest.fixture(scope="session")
def encoder_decoder(shelf, tmp_path_factory):
    """Gives a tiny random encoder-decoder model by the name of its architecture."""

    @cache
    def get(architecture: str) -> MadeModels:
        target = tmp_path_factory.mktemp(architecture) / "models"
        make = partial(make_encoder_decoder, architecture)
        sources = Path(tiny_encoder_decoder.__file__)
        return MadeModels(shelf.copy(architecture, make, target, sources))

    return get
