"""`ov-specdec serve`: an OpenAI-compatible server."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import click

from ov_specdec.cli.declare import WAYS, command, options_of, take, typed
from ov_specdec.cli.options import (
    PIPELINE,
    is_speech,
    make_pipeline,
    make_speech_pipeline,
    model_name,
    speech_arguments,
    verify_invariance,
)
from ov_specdec.cli.terminal import by_flag, console
from ov_specdec.errors import OptionError, requiring, suggest
from ov_specdec.options.model import Options, option
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.settings import (
    LOOPBACK_NAMES,
    Binding,
    Settings,
    check_address,
    check_socket,
    is_loopback,
)
from ov_specdec.speech.audio import require_libraries

VARIABLE_PREFIX = "OV_SPECDEC"
"""Of environment variables that have the values of options."""


def _with_variables(made: click.Command) -> click.Command:
    """Name the variable of each option by its flag, such as OV_SPECDEC_API_KEY for --api-key."""
    made.context_settings["auto_envvar_prefix"] = VARIABLE_PREFIX  # for Python's names
    for flag, each in by_flag(made).items():
        each.envvar = f"{VARIABLE_PREFIX}_{flag.replace('-', '_').upper()}"
    return made


def _read_config(context: click.Context, _: click.Parameter, text: str | None) -> None:
    """Take the values of a file as defaults of options."""
    import yaml

    if text is None:
        return
    try:
        # Values stay texts, as if typed: YAML would read 1:4 as 64, and 1.10 as 1.1.
        content = yaml.load(text, yaml.BaseLoader) or {}  # noqa: S506
    except yaml.YAMLError as error:
        raise click.BadParameter(f"the file cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise click.BadParameter("the file must map options to values")
    known = by_flag(context.command)
    context.default_map = {}
    for key, value in content.items():
        typed = str(key).replace("_", "-")  # max-queue or max_queue
        if typed not in known:
            hint = suggest(typed, known, "leave it out")
            raise click.BadParameter(f"'{key}' is not an option: {hint}")
        is_one = known[typed].multiple and isinstance(value, str)
        context.default_map[str(known[typed].name)] = [value] if is_one else value


class ServeOptions(Options):
    """Options of `serve`, besides those of the server's settings and pipelines."""

    api_key_file: str | None = option(
        None,
        "Require one of the keys in this file, one per line.",
        unset="no key",
        metavar="TEXT-FILE",
    )
    ollama: bool = option(False, "Listen on Ollama's port, 11434.")
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "info", "Minimum level of log messages."
    )
    replicas: int | None = option(
        None,
        "Number of replicas of the models under Ray Serve, each on exclusive CPUs.",
        ge=1,
        unset="one process, without Ray",
        group="Replicas",
    )
    autoscale: tuple[int, int] | None = option(
        None,
        "Scale the number of replicas with the load.",
        unset="constant, --replicas",
        metavar="MIN:MAX",
    )
    address: str | None = option(
        None,
        "Ray cluster of the replicas: auto or HOST:PORT.",
        unset="starts one on this machine",
        metavar="ADDRESS",
    )


@_with_variables
@command(
    "[MAIN] [DRAFT]",
    click.option(
        "--config",
        type=WAYS["TEXT-FILE"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        help="Read options from a YAML file, such as max-queue: 64. The command line and "
        f"environment variables such as {VARIABLE_PREFIX}_MAX_QUEUE take precedence.",
    ),
    options_of(Binding.model_fields),
    options_of(Settings.model_fields, served_model_name=()),
    options_of(PIPELINE),
    options_of(ServeOptions.model_fields),
)
def serve(**options: Any) -> None:
    """Serve the models over HTTP, to clients of OpenAI, Anthropic and Ollama."""
    asked = ServeOptions(**take(options, ServeOptions.model_fields))
    pipeline = take(options, PIPELINE)
    if asked.ollama and "port" not in typed(options):
        options["port"] = 11434
    binding = Binding(**take(options, Binding.model_fields))
    scale, speech = _scale(asked.replicas, asked.autoscale), is_speech(pipeline["main"])
    if not scale and asked.address is not None:
        problem = f"--address '{asked.address}' has no effect without --replicas"
        raise OptionError(f"{problem}: give both")
    load: partial[Any] = partial(_load, pipeline)
    if speech:
        load = partial(make_speech_pipeline, speech_arguments(pipeline))
    options["api_keys"] += tuple(_read_keys(asked.api_key_file))
    options["served_model_name"] = options["served_model_name"] or model_name(pipeline["main"])
    settings, binding = _open(Settings(**options), binding)
    # Ray prints to stdout, which is redirected by the time that this is called.
    announce = partial(click.echo, binding.url, file=sys.stdout)
    if scale and speech:
        raise OptionError("a speech model is served by one process: leave out --replicas")
    if speech:
        require_libraries()
    if scale:
        scale |= {"pipeline": pipeline, "settings": settings.model_dump()}
        scale["log_level"] = asked.log_level
        _serve_replicas(scale, binding, asked.address, announce)
        return
    packages = "fastapi, uvicorn, prometheus-client and python-multipart"
    with requiring(f"the server needs {packages}", "serve"):
        from ov_specdec.server.access import set_up_log
        from ov_specdec.server.run import serve as run_server
    set_up_log(asked.log_level)
    run_server(load, settings, binding, announce)


def _load(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load models for many requests, check batch invariance, and measure passes."""
    pipeline = make_pipeline(arguments)
    verify_invariance(pipeline)
    with console.status("Measuring passes"):
        pipeline.measure_costs()
    return pipeline


def _open(settings: Settings, binding: Binding) -> tuple[Settings, Binding]:
    """Settings for an address that can be used: without a key, restrict host names or warn."""
    if binding.uds is not None:
        check_socket(binding.uds)
        return settings, binding
    if not settings.api_keys and not is_loopback(binding.host):
        problem = f"anyone who can reach {binding.host} can use this server"
        click.echo(f"warning: {problem}: give --api-key-file", err=True)
    elif not settings.api_keys and not settings.allowed_hosts:
        settings = settings.model_copy(update={"allowed_hosts": LOOPBACK_NAMES})
    port = check_address(binding.host, binding.port)
    return settings, binding.model_copy(update={"port": port})


def _scale(replicas: int | None, autoscale: tuple[int, int] | None) -> dict[str, Any]:
    """The number of replicas as arguments of `ClusterArgs`; none for one process, without any."""
    if autoscale is None:
        return {} if replicas is None else {"replicas": replicas}
    low, high = autoscale
    first = low if replicas is None else replicas
    if not low <= first <= high:
        raise OptionError(f"--replicas {first} must be within --autoscale {low}:{high}")
    return {"autoscale": {"min_replicas": low, "initial_replicas": first, "max_replicas": high}}


def _serve_replicas(
    args: Mapping[str, Any], binding: Binding, address: str | None, announce: Callable[[], None]
) -> None:
    for name in ("uds", "ssl_certfile", "ssl_keyfile", "root_path"):
        if getattr(binding, name):
            problem = f"{{{name}}} has no effect with several replicas"
            raise OptionError(f"{problem}: leave it out", **{name: ...})
    with requiring("several replicas need Ray Serve", "cluster"):
        from ov_specdec.cluster.application import ClusterArgs, serve_replicas
    checked = ClusterArgs.model_validate(args)
    serve_replicas(checked, binding.host, binding.port, address, announce)


def _read_keys(text: str | None) -> list[str]:
    """The keys in a text, one per line; skips empty lines and lines that begin with #."""
    lines = [line.strip() for line in (text or "").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if text is not None and not keys:
        raise OptionError("--api-key-file holds no key: write one per line")
    return keys
