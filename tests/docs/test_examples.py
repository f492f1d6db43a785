"""The Python examples of the documents run as they are written."""

import re
import shlex
import zlib
from functools import partialmethod
from math import inf
from pathlib import Path

import click
import pytest

from lab.benchmarks.__main__ import benchmarks
from lab.docs.recording import COMMANDS
from ov_specdec import SpeculativePipeline
from ov_specdec.cli.app import app
from tests.support.recordings import write_recording
from tests.support.tiny_whisper import RATE, recording

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PAGES = [page for at in ("", "docs/", "models/**/", "lab/") for page in ROOT.glob(f"{at}*.md")]
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OF_A_CLIENT = "from openai"
"""A line of a block that needs a server: the tests of the server run it, as its page has it."""


def examples(document):
    """The Python blocks of a document, below as many empty lines as there are lines above."""
    text = document.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if f"\n{OF_A_CLIENT}" not in f"\n{match.group(1)}":
            yield "\n" * text[: match.start(1)].count("\n") + match.group(1)


def run(document):
    """Execute all blocks in one namespace, from the repository's root; returns the namespace."""
    namespace = {"__name__": "example"}
    for source in examples(document):
        exec(compile(source, str(document), "exec"), namespace)  # noqa: S102
    return namespace


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_first_command_of_the_readme_writes_a_long_text_without_loops():
    [command, *_] = re.findall(r"ov-specdec .* -.*", (ROOT / "README.md").read_text("utf-8"))
    assert (tuple(shlex.split(command, comments=True)),) == COMMANDS
    _, _, prompt, option, value = COMMANDS[0]
    assert option == "--repetition-penalty"
    with SpeculativePipeline() as pipeline:
        result = pipeline.generate(prompt, repetition_penalty=float(value), max_new_tokens=128)
    assert len(result.token_ids) == 128
    # Loops of this model take up to 0.3: its texts differ by processor.
    assert len(zlib.compress(result.text.encode())) > 0.4 * len(result.text)


def test_the_first_block_of_the_readme_is_set_up_and_main_job_and_then_the_tests():
    """`.ci/run` runs its two lines as they are, but for the folder of the environment."""
    job, tests = SHELL.findall((ROOT / "README.md").read_text("utf-8"))[0].splitlines()
    assert job.startswith("python3 -m venv .venv && . .venv/bin/activate && pip install . && ")
    assert tests.startswith("pip install '.[test]' && pytest ")


def test_the_guide_runs_from_top_to_bottom(capsys, monkeypatch):
    # Without static shapes, whose compilation takes longer than all else here.
    measure = partialmethod(SpeculativePipeline.measure_costs, seconds=0.2)
    monkeypatch.setattr(SpeculativePipeline, "prepare", measure)
    monkeypatch.setattr("ov_specdec.engine.static_shapes.SECONDS", inf)
    namespace = run(ROOT / "docs" / "guide.md")
    printed = capsys.readouterr().out
    assert "unknown option max_tokens=8: did you mean max_new_tokens?\n" in printed
    assert "\ncancelled\n" in printed
    assert "this pipeline is closed" in printed
    assert namespace["plain"].stats.tokens_per_main_pass == 1.0
    assert namespace["fixed"].stats.drafted > 0


def test_the_readme_runs(capsys):
    namespace = run(ROOT / "README.md")
    printed = capsys.readouterr().out
    assert len(re.findall(r"\d+ tokens/s, \d+% of the drafts accepted", printed)) == 2
    again = namespace["result"].stats
    assert again.acceptance_rate == 1.0, "an answer is drafted from when it is asked again"
    assert again.tokens_per_main_pass > 1


def test_the_page_on_structured_output_runs(capsys):
    namespace = run(ROOT / "docs" / "structured-output.md")
    assert namespace["result"].parsed.model_dump_json() == namespace["result"].text
    assert " tokens were forced\n" in capsys.readouterr().out


def test_the_page_on_speech_runs(whisper, tmp_path, monkeypatch, capsys):
    models = tmp_path / "models"
    models.mkdir()
    for name, folder in (("int8", whisper.main), ("int4", whisper.draft)):
        (models / f"whisper-base-{name}").symlink_to(folder)
    write_recording(tmp_path / "talk.mp3", recording(2.0), RATE, form="mp3")
    monkeypatch.chdir(tmp_path)
    result = run(ROOT / "docs" / "speech.md")["result"]
    assert result.text in capsys.readouterr().out


def test_every_python_example_runs():
    """Those of a client are in the tests of the server."""
    pages = {page.name for page in PAGES if [*examples(page)]}
    assert pages == {"README.md", "guide.md", "speech.md", "structured-output.md"}
    of_clients = {p.name for p in PAGES if f"\n{OF_A_CLIENT}" in p.read_text("utf-8")}
    assert of_clients == {"server.md", "structured-output.md", "tools.md"}


def commands():
    """The lines of shell examples, as words: those of this project's programs."""
    for page in PAGES:
        for block in SHELL.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                for start in ("ov-specdec", "lab.benchmarks"):
                    if start in words[:-1] and "docker" not in words:
                        yield page.name, line, start, words[words.index(start) + 1 :]


@pytest.mark.parametrize(("page", "line", "program", "words"), [*commands()])
def test_commands_of_examples_have_the_options_that_are_given(page, line, program, words):
    group = app if program == "ov-specdec" else benchmarks
    if words[0].startswith("-") or words[0].isupper():
        return
    command = group.get_command(click.Context(group), words[0])
    assert command is not None, f"{page}: {line}"
    known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    ends = [word in ("|", "&&", "&", ";") for word in words]
    own = words[: ends.index(True)] if any(ends) else words
    flags = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
    assert flags - known - {"--help"} == set(), f"{page}: {line}"
