"""The options of `peers`, and what they ask for."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ov_specdec.arguments import find_pairing
from ov_specdec.bench.prompts import PROMPT_SETS, read_prompts
from ov_specdec.checks import require_int
from ov_specdec.cli.options import (
    COMPILE_OPTIONS,
    DEVICE_OPTION,
    MODEL_OPTIONS,
    PAIRING_OPTION,
    PROFILE_OPTION,
    STATIC_SHAPES_OPTION,
    parse_properties,
    parse_sizes,
    with_options,
)
from ov_specdec.errors import Option, OptionError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.profile import find_profile
from ov_specdec.loading.runtime_config import RuntimeConfig
from tests.benchmarks.peers.load import TOGETHER, check_arrivals
from tests.benchmarks.peers.methods import (
    BASELINE,
    GROUPS,
    LOADS,
    QUICK_LOADS,
    Method,
    find_method,
    select_methods,
)
from tests.benchmarks.peers.methods import FULL as FULL_METHODS
from tests.benchmarks.peers.methods import QUICK as QUICK_METHODS
from tests.benchmarks.peers.plan import FULL, QUICK, Plan
from tests.benchmarks.peers.prompts import MIX_TOKENS
from tests.benchmarks.peers.setup import Setup

PEERS_OPTIONS = (
    click.option("--quick", is_flag=True, help="A few methods on two prompts: to see it work."),
    click.option(
        "--baseline",
        default=BASELINE,
        show_default=True,
        metavar="M",
        help="Method that ratios are taken to; it runs too.",
    ),
    click.option(
        "--prompts",
        "prompt_set",
        type=click.Choice(list(PROMPT_SETS)),
        help="quoting: the continuation quotes the prompt. [code]",
    ),
    click.option(
        "--prompt-file",
        type=click.Path(path_type=Path),
        metavar="F",
        help='Other prompts: one per line; in .jsonl files, objects with "prompt".',
    ),
    click.option(
        "--concurrency",
        metavar="N,N,...",
        help="Measure loads of several requests instead, so many at a time.",
    ),
    click.option(
        "--arrivals",
        metavar="together|poisson:RATE",
        default=TOGETHER,
        show_default=True,
        help="When the requests of a load come; RATE is how many per second.",
    ),
    click.option(
        "--mix",
        is_flag=True,
        help="Fill prompts up to lengths from {} to {} tokens.".format(*MIX_TOKENS),
    ),
    click.option(
        "--max-prefill-tokens-per-step",
        type=int,
        metavar="N",
        help="Tokens of prompts that a pass of a load reads while others are being answered.",
    ),
    click.option("--context", type=int, metavar="N", help="Fill prompts up to N tokens."),
    click.option("--rounds", type=int, metavar="N", help=f"Runs per prompt. [{FULL.rounds}]"),
    click.option(
        "--max-new-tokens", type=int, metavar="N", help=f"Tokens per run. [{FULL.max_new_tokens}]"
    ),
    click.option(
        "--timeout",
        type=int,
        metavar="S",
        default=600,
        show_default=True,
        help="Seconds for a load or a run; a method that takes longer is stopped.",
    ),
    click.option(
        "--output",
        type=click.Path(path_type=Path),
        default=Path("benchmark"),
        show_default=True,
        help="Folder for the report.",
    ),
    *MODEL_OPTIONS,
    PAIRING_OPTION,
    DEVICE_OPTION,
    PROFILE_OPTION,
    *COMPILE_OPTIONS,
    STATIC_SHAPES_OPTION,
)


@dataclass(frozen=True)
class Request:
    """What a command line asks of the benchmark.

    prompts: texts. context: tokens that they are to be filled up to. timeout: seconds. concurrency:
    requests at a time, for loads of several; arrivals, mix: of these.
    """

    methods: Sequence[Method]
    baseline: str
    prompts: Sequence[str]
    context: int | None
    plan: Plan
    timeout: int
    output: Path
    setup: Setup
    concurrency: tuple[int, ...]
    arrivals: str
    mix: bool


def peers_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the benchmark; it is called with a `Request`."""
    methods = click.option(
        "--methods",
        metavar="M,M,...",
        help=f"Methods and groups of them ({', '.join(GROUPS)}); plain always runs. "
        f"[{','.join(FULL_METHODS)}]",
    )

    @functools.wraps(command)
    def gathered(**options: Any) -> None:
        command(make_request(options))

    return with_options((methods, *PEERS_OPTIONS))(gathered)


def make_request(options: dict[str, Any]) -> Request:
    """Check the options and find the models. Raises `OptionError` and `ModelError`."""
    concurrency = _concurrency(options)
    plan = _plan(options)
    require_int("timeout", options["timeout"], low=1)
    if options["context"] is not None:
        require_int("context", options["context"], low=1)
    return Request(
        methods=_methods(options),
        baseline=options["baseline"],
        prompts=_prompts(options)[: plan.num_prompts],
        context=options["context"],
        plan=plan,
        timeout=options["timeout"],
        output=options["output"],
        setup=replace(
            _setup(options),
            max_batch_size=max(concurrency, default=1),
            max_prefill_tokens_per_step=options["max_prefill_tokens_per_step"],
        ),
        concurrency=concurrency,
        arrivals=options["arrivals"],
        mix=options["mix"],
    )


def _concurrency(options: dict[str, Any]) -> tuple[int, ...]:
    """How many requests at a time, fewest first; none where single requests are measured."""
    given, arrivals = options["concurrency"], options["arrivals"]
    if given is None:
        unused = {"arrivals": arrivals != TOGETHER and arrivals, "mix": options["mix"]}
        unused["max_prefill_tokens_per_step"] = options["max_prefill_tokens_per_step"]
        for name, value in unused.items():
            if value:
                needed = Option("concurrency")
                raise OptionError(Option(name, value), " has no effect without ", needed)
        return ()
    numbers = given.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise OptionError(Option("concurrency", given), " must be whole numbers above 0: 1,2,4")
    check_arrivals(arrivals)
    if options["mix"] and options["context"] is not None:
        context = Option("context", options["context"])
        raise OptionError(Option("mix", True), " contradicts ", context, ": leave out one")
    return tuple(sorted(set(map(int, numbers))))


def _plan(options: dict[str, Any]) -> Plan:
    given = {name: options[name] for name in ("rounds", "max_new_tokens")}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        require_int(name, value, low=1)
    return replace(QUICK if options["quick"] else FULL, **given)


def _methods(options: dict[str, Any]) -> list[Method]:
    """The methods that were asked for, the baseline among them."""
    if options["methods"] is not None:
        names = tuple(options["methods"].split(","))
    elif options["concurrency"] is not None:
        names = QUICK_LOADS if options["quick"] else LOADS
    else:
        names = QUICK_METHODS if options["quick"] else FULL_METHODS
    return select_methods((*names, find_method(options["baseline"]).name))


def _prompts(options: dict[str, Any]) -> Sequence[str]:
    prompt_set, file = options["prompt_set"], options["prompt_file"]
    if prompt_set is not None and file is not None:
        raise OptionError(f"give --prompts '{prompt_set}' or --prompt-file '{file}', not both")
    return PROMPT_SETS[prompt_set or "code"] if file is None else read_prompts(file)


def _setup(options: dict[str, Any]) -> Setup:
    if options["main"] is not None and options["draft"] is None:
        raise OptionError(f"no draft model for main '{options['main']}': give --draft")
    folders = {
        role: embedded_folder(role) if options[role] is None else locate(options[role])
        for role in ("main", "draft")
    }
    properties: dict[str, Any] = {"properties": parse_properties(options["properties"])}
    if options["profile"] != "none":
        properties |= _profile(options, folders["main"], folders["draft"])
    return Setup(
        main=str(folders["main"]),
        draft=str(folders["draft"]),
        device=options["device"],
        precision=options["precision"],
        static_shapes=parse_sizes(options["static_shapes"]),
        pairing=find_pairing(folders["main"], folders["draft"], options["pairing"]),
        **properties,
    )


def _profile(options: dict[str, Any], main: Path, draft: Path) -> dict[str, Any]:
    """The settings of the profile that `--profile` names, if there is one and none is given."""
    if options["precision"] != "default" or options["properties"]:
        if options["profile"] != "auto":
            raise OptionError(
                f"--profile '{options['profile']}' has no effect with --precision or --property: "
                "leave out one of the two"
            )
        return {}
    folders = ModelFolder.read(main), ModelFolder.read(draft)
    found = find_profile(options["profile"], *folders, options["device"], RuntimeConfig.kv)
    if found is None:
        return {}
    path, profile = found
    return {
        "properties": dict(profile.main_properties),
        "draft_properties": dict(profile.draft_properties),
        "profile": str(path),
    }
