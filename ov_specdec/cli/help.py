"""The help of a command: its most used options by group, and examples; or all options."""

from itertools import groupby
from typing import Any

import click

GROUPS = (
    *("Models", "Prompt", "Length and end of the output", "Sampling", "Speculation", "Speech"),
    *("Address", "Access", "Requests", "Replicas", "Weights", "Logits processors"),
    *("Structured output", "Tools and reasoning", "Log-probabilities", "KV cache", "Computation"),
    *("Output", "Options"),
)
"""Titles in the order of the help; the last one is of options that are described without one."""

MOST_USED = (
    *("main", "draft", "device", "prompt_file", "system", "max_new_tokens", "stop_strings"),
    *("temperature", "top_p", "top_k", "seed", "generation_config", "drafter"),
    *("num_assistant_tokens", "language", "task", "word_timestamps", "host", "port"),
    *("max_batch_size", "max_queue", "replicas", "weight_format", "draft_from_main"),
    *("form", "output", "as_json", "verbose", "", "debug", "help_all", "help"),
)
"""Options that `--help` shows, in this order, and in the place of "" those without a group."""

EXAMPLES = """\
generate "def fibonacci(n):" --max-new-tokens 128
generate big-model "Why is the sky blue?" --draft small-model
generate big-model --prompt-file report.txt --drafter suffix
chat big-model small-model --generation-config model
chat big-model --system "Answer in one sentence." --temperature 0.7
chat big-model < questions.txt
compare "def quicksort(xs):"
compare big-model "Why is the sky blue?" --draft small-model
compare big-model --prompt-file report.txt --drafter suffix --repeat 5
batch requests.jsonl --output results.jsonl
batch big-model requests.jsonl --draft small-model --output results.jsonl
batch big-model requests.jsonl --output results.jsonl --max-batch-size 4
transcribe whisper-base talk.mp3
transcribe whisper-base talk.mp3 --draft whisper-tiny --format srt
transcribe whisper-base a.mp3 b.mp3 --format vtt --word-timestamps --output texts
demo --port 8000
demo big-model small-model
demo whisper-base --draft whisper-tiny
serve big-model small-model --port 8000
serve big-model --host 0.0.0.0 --api-key-file keys.txt
serve big-model --replicas 2
tune big-model small-model
tune big-model small-model --other-draft big-model-int4 --seconds 300
tune big-model --other-draft big-model-int4
bench --quick
bench big-model small-model --concurrency 1,8 --output results.json
bench big-model --methods suffix,prompt-lookup --prompts quoting
check big-model small-model
check big-model --device GPU
check
devices
devices big-model
export Qwen/Qwen2.5-7B-Instruct Qwen/Qwen2.5-0.5B-Instruct --weight-format int4
export Qwen/Qwen2.5-7B-Instruct --weight-format int8 --draft-from-main int4
export openai/whisper-base openai/whisper-tiny --weight-format int8
"""


class GroupedOption(click.Option):
    """An option with the title of its group in the help."""

    def __init__(self, *args: Any, group: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group or GROUPS[-1]


def show_help(context: click.Context, flag: click.Parameter, is_given: bool) -> None:
    """Print the help and exit. flag: --help or --help-all."""
    if not is_given or context.resilient_parsing:
        return
    command, formatter = context.command, context.make_formatter()
    options = [each for each in command.params if isinstance(each, click.Option)]
    if flag.name == "help":
        options = [o for o in options if o.name in MOST_USED or _group_of(o) == GROUPS[-1]]
    rows: list[tuple[str, str]] = []
    for group, members in groupby(sorted(options, key=_rank), _group_of):
        records = filter(None, (each.get_help_record(context) for each in members))
        rows += [("", ""), (f"{group}:", ""), *((f"  {term}", text) for term, text in records)]
    own = [line for line in EXAMPLES.splitlines() if line.split()[0] == command.name]
    if own:
        rows += [("", ""), ("Examples:", ""), *((f"  ov-specdec {line}", "") for line in own)]
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    formatter.write_dl(rows, col_max=20)
    click.echo(formatter.getvalue(), nl=False)
    context.exit()


def _group_of(option: click.Option) -> str:
    return getattr(option, "group", GROUPS[-1])


def _rank(option: click.Option) -> tuple[int, int]:
    name = option.name if option.name in MOST_USED else ""
    return GROUPS.index(_group_of(option)), MOST_USED.index(name)
