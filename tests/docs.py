"""What is made from the code, which `python -m tests.docs` writes: pages, and keyword arguments."""

import ast
import copy
from itertools import groupby
from pathlib import Path

import click

import ov_specdec
from ov_specdec.cli.app import COMMANDS, app
from ov_specdec.cli.chat.commands import HELP
from ov_specdec.cli.options import GENERATION_NAMES, PIPELINE_NAMES
from tests.option_tables import KWARGS, OPTIONS, kwargs, options_page

PACKAGE = Path(ov_specdec.__file__).parent
DOCS = Path(__file__).parent.parent / "docs"
CLI_REFERENCE = DOCS / "cli.md"
MODULES = DOCS / "modules.md"
WIDTH = 100

# Prose, and shell commands as a reader would type them.
INTRODUCTION = """\
# Command line

This page is made from the commands' own help by `python -m tests.docs`.

## Examples

Continue a prompt with the embedded pair of models, which needs no network. The text goes to stdout,
a line of statistics to stderr:

```sh
ov-specdec generate "def fibonacci(n):"
```

Draw tokens instead of taking the most likely ones, and end at an empty line:

```sh
ov-specdec generate "class Stack:" --temperature 0.8 --top-p 0.95 --seed 1 --stop '\\n\\n'
```

Talk with a chat model; [below](#chat) is what can be typed:

```sh
ov-specdec chat --main models/SmolLM2-135M-Instruct-int8 --drafter suffix \\
    --system "Answer in one short sentence." --temperature 0.7
```

Pipe a prompt in, or take it from a file:

```sh
head -40 utils.py | ov-specdec generate --max-new-tokens 64
ov-specdec generate --prompt-file prompt.txt
```

Get one JSON object for other programs, here for [jq](https://jqlang.org):

```sh
ov-specdec generate "def area(" --json | jq -r '.text, .stats.tokens_per_second'
```

Measure plain against speculative decoding on one prompt, with outputs that are equal token for
token:

```sh
ov-specdec compare "def quicksort(xs):"
```

With models of your own, which share a tokenizer; see [export](#export) for how to make them:

```sh
ov-specdec check models/Qwen2.5-7B-Instruct-int8 models/Qwen2.5-0.5B-Instruct-int8
ov-specdec generate "Why is the sky blue?" --main models/Qwen2.5-7B-Instruct-int8 \\
    --draft models/Qwen2.5-0.5B-Instruct-int8
```

With a chat model, give a system message, and sample as the model's authors recommend:

```sh
ov-specdec generate "Why is the sky blue?" --main models/Qwen2.5-7B-Instruct-int8 \\
    --draft models/Qwen2.5-0.5B-Instruct-int8 \\
    --system "Answer in one sentence." --generation-config model
```

Without a draft model, draft tokens can come from the text itself, which pays where the output
quotes the prompt or repeats itself, and from a file that the output is going to resemble:

```sh
ov-specdec generate --prompt-file report.txt --drafter suffix \\
    --main models/Qwen2.5-7B-Instruct-int8
ov-specdec generate "Add type hints to utils.py." --drafter suffix --reference-texts utils.py \\
    --main models/Qwen2.5-7B-Instruct-int8
```

Or the model drafts for itself, with weights of 4 bits. `tune` says which of them pays on your
machine:

```sh
ov-specdec export --main Qwen/Qwen2.5-7B-Instruct --weight-format int8 --draft-from-main int4
ov-specdec tune models/Qwen2.5-7B-Instruct-int8 models/Qwen2.5-0.5B-Instruct-int8 \\
    --other-draft models/Qwen2.5-7B-Instruct-int4
```

Let `tune` measure once which settings suit a pair on your machine. Later runs of `generate`,
`compare`, `chat`, `batch`, `serve`, `demo` and `bench` take its profile up, unless precision,
properties, threads, a KV backend or another device for the draft are given, or the drafter has no
draft model. What went into a file (`--output FILE`) they take up with `--profile FILE`:

```sh
ov-specdec tune models/Qwen2.5-7B-Instruct-int8 models/Qwen2.5-0.5B-Instruct-int8
```

Answer a file of requests, many at a time; what is [in it](#batch):

```sh
ov-specdec batch requests.jsonl --output results.jsonl
```

Watch both ways of decoding in a browser ([demo.md](demo.md)), and measure all of them
([benchmarking.md](benchmarking.md)):

```sh
ov-specdec demo --port 8000
ov-specdec bench --quick
```

## Output and exit codes

Results go to stdout, progress, warnings and summaries to stderr. Exit code 0 is success, 1 the
negative answer of `check`, 2 an error: its message, one line, names the value and the remedy. An
interrupted run is one of these.

Every command takes `--debug`, which shows the traceback of an error, and `-h` or `--help`.
"""

SHARED = """\
## Options shared by generate and compare

`demo` and `bench` take some of them too, and say so. Those of a generation have the names and
meanings of `transformers.GenerationConfig`, with hyphens.
"""

NOTES = {
    "batch": """\
A line of REQUESTS, and what comes of it (here in several lines):

```
{"custom_id": "1", "method": "POST", "url": "/v1/completions",
 "body": {"prompt": "def area(", "max_tokens": 16, "temperature": 0}}

{"id": "batch_req_...", "custom_id": "1",
 "response": {"status_code": 200, "request_id": "req_...",
              "body": {"object": "text_completion", "choices": [...], "usage": {...}, ...}},
 "error": null}
```

The fields of a body are those of the [server](server.md), but for `stream`. As there, an omitted
temperature is 1, unless `--generation-config model` says otherwise. A `model` that is given must be
the name of the one that runs (`--served-model-name`).

A request that cannot be honoured, or fails, has a `status_code` other than 200 and OpenAI's `error`
as its body. A line that is no request, or repeats a `custom_id`, has the result
`{"custom_id": null, "response": null, "error": {"code", "message", "line"}}`.

The file of requests is read as they are answered, and each result is written whole. A run that was
interrupted goes on where the same command is given again: what the file of results holds, errors
included, is not asked again. To try failed requests once more, remove their lines.
""",
    "chat": f"""\
The commands of a chat:

```
{HELP}
```

`/set` takes the names and values of the command line: `/set temperature 0.7`, `/set ignore-eos
true`. An option that may be given several times is given once more: `/set stop \\n\\n`.

An answer goes to stdout as it comes; commands reply on stderr, where a line of statistics follows
each answer: tokens per second, prefill included; accepted draft tokens; and how many tokens of the
prompt were in the KV cache already, so that they were not read again. An error leaves the
conversation as it was: also where the model's context is full, which `/undo` and `/clear` remedy.

What was typed is kept in `ov-specdec/history` in the user's cache folder (`XDG_CACHE_HOME`, or
`~/.cache`), readable by its owner only.

Where stdin is no terminal, each of its lines is a message or a command. The first error ends such
a run with exit code 2, and so does Ctrl-C.

`--prompt-cache FILE` writes the file where there is none: a safetensors file with the KV cache of
the main model, and one for the draft model beside it, which is added where there is only the first.
A later chat with the same models and options reads them instead of the system message. A file that
was made with other models, or on another machine, is refused; one for another system message is
used as far as both begin alike, and the chat says so.
""",
    "tune": """\
The name of the profile is a fingerprint of both models, the device, the cores, the version of
OpenVINO and the KV backend, so that a run takes up only what was measured for its own case. One in
the cache folder that is broken, or of another format, is left out with a warning; one that is named
is an error. The cost curve that is kept is that of the chosen settings.
""",
}
"""What a command's section says beside its help."""

FOR_EVERY_COMMAND = ("debug",)


def cli_reference() -> str:
    """The page: examples, the options that two commands share, and the help of each command."""
    context = click.Context(app, info_name="ov-specdec")
    commands = {name: app.get_command(context, name) for name in COMMANDS}
    shared = _shared(commands["generate"], commands["compare"])
    sections = {name: _command(name, command, shared) for name, command in commands.items()}
    first = [sections.pop(name) for name in ("generate", "compare")]
    return "\n".join([INTRODUCTION, *first, SHARED, _shared_help(shared), *sections.values()])


def _shared(one: click.Command, other: click.Command) -> dict[str, click.Option]:
    """The options of both, by name, but for those of every command."""
    return {
        name: option
        for name, option in _options(one).items()
        if name in _options(other) and name not in FOR_EVERY_COMMAND
    }


def _options(command: click.Command) -> dict[str, click.Option]:
    return {str(p.name): p for p in command.params if isinstance(p, click.Option)}


def _command(name: str, command: click.Command, shared: dict[str, click.Option]) -> str:
    """A command's help with its own options, and a sentence about the others."""
    options = _options(command)
    same = [key for key in options if key in shared and _same(options[key], shared[key])]
    own = copy.copy(command)
    own.params = [p for p in command.params if p.name not in (*same, *FOR_EVERY_COMMAND)]
    own.add_help_option = False
    context = click.Context(own, info_name=f"ov-specdec {name}", terminal_width=WIDTH)
    section = f"## {name}\n\n```\n{own.get_help(context).strip()}\n```\n"
    parts = [section, _shared_note(same, shared), NOTES.get(name, "")]
    return "\n".join(part for part in parts if part)


def _shared_note(same: list[str], shared: dict[str, click.Option]) -> str:
    """Which of the shared options a command has."""
    link = "[shared options](#options-shared-by-generate-and-compare)"
    lacking = [key for key in shared if key not in same]
    if not lacking:
        return f"All {link}.\n"
    if len(lacking) < len(same):
        return f"All {link} but these:\n{_flags(lacking, shared)}\n"
    return f"Of the {link}:\n{_flags(same, shared)}\n" if same else ""


def _flags(keys: list[str], options: dict[str, click.Option]) -> str:
    return " ".join(f"`{max(options[key].opts, key=len)}`" for key in keys)


def _same(one: click.Option, other: click.Option) -> bool:
    return (one.opts, one.help, one.default) == (other.opts, other.help, other.default)


def _shared_help(shared: dict[str, click.Option]) -> str:
    groups = {
        "Prompt and output": set(shared) - {*PIPELINE_NAMES, *GENERATION_NAMES},
        "Models": set(PIPELINE_NAMES),
        "Generation": set(GENERATION_NAMES),
    }
    context = click.Context(app)
    parts = []
    for title, names in groups.items():
        formatter = click.HelpFormatter(width=WIDTH)
        records = [shared[key].get_help_record(context) for key in shared if key in names]
        formatter.write_dl([record for record in records if record is not None])
        parts.append(f"### {title}\n\n```\n{formatter.getvalue().rstrip()}\n```\n")
    return "\n".join(parts)


MODULES_INTRODUCTION = """\
# Modules

The first line of each module's docstring, put together by `python -m tests.docs`. Who may import
whom: [architecture](architecture.md#the-layers).
"""


def modules() -> str:
    """The page: what each module is, package by package."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py"]
    folders = groupby(sorted(files, key=lambda path: (path.parent, path)), lambda path: path.parent)
    return "\n".join([MODULES_INTRODUCTION, *(_package(list(paths)) for _, paths in folders)])


def _package(files: list[Path]) -> str:
    """A package's own line, and a table of its modules. files: its `__init__.py` first."""
    own, *others = files
    name = ".".join(own.parent.relative_to(PACKAGE.parent).parts)
    modules = [path.relative_to(PACKAGE).with_suffix("").as_posix() for path in others]
    rows = [f"| `{module}` | {_line(path)} |" for module, path in zip(modules, others, strict=True)]
    return "\n".join([f"## {name}\n", f"{_line(own)}\n", "| module | is |", "|---|---|", *rows, ""])


def _line(module: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


if __name__ == "__main__":
    OPTIONS.write_text(options_page(), encoding="utf-8")
    KWARGS.write_text(kwargs(), encoding="utf-8")
    CLI_REFERENCE.write_text(cli_reference(), encoding="utf-8")
    MODULES.write_text(modules(), encoding="utf-8")
