"""`ov-specdec serve`: an OpenAI-compatible server."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ov_specdec.checks import require_number
from ov_specdec.cli.address import LOOPBACK_NAMES, bare_host, check_address, is_loopback
from ov_specdec.cli.cluster_options import CLUSTER_OPTIONS, ClusterOptions, pop_cluster
from ov_specdec.cli.config_file import CONFIG_OPTION
from ov_specdec.cli.loading import make_lasting_pipeline
from ov_specdec.cli.model_options import (
    BATCH_OPTIONS,
    LOADING_PIPELINE_OPTIONS,
    STRICT_FIELDS_OPTION,
    generation_config_option,
    model_name,
    pop_pipeline,
    with_options,
)
from ov_specdec.cli.speech import is_speech, make_speech_pipeline, speech_arguments
from ov_specdec.cli.terminal import with_errors
from ov_specdec.errors import Option, OptionError, install
from ov_specdec.speech.audio import require_libraries

MAX_TEXT, MAX_RECORDING = 4.0, 25.0
"""Default maximum megabytes of a body; for recordings as in OpenAI's reference."""

if TYPE_CHECKING:
    from ov_specdec.server.settings import Settings

BINDING = ("host", "port", "uds", "ssl_certfile", "ssl_keyfile", "root_path")
"""Options that are fields of `Binding`."""

LEVELS = ("debug", "info", "warning", "error")

SERVER_OPTIONS = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on."),
    click.option(
        "--port",
        type=int,
        metavar="N",
        default=8000,
        show_default=True,
        help="Port to serve on; 0 takes any free port.",
    ),
    click.option(
        "--uds", metavar="PATH", help="Serve on this Unix socket instead of --host and --port."
    ),
    click.option(
        "--ssl-certfile", metavar="F", help="Certificate for TLS, as a PEM file. [no TLS]"
    ),
    click.option("--ssl-keyfile", metavar="F", help="Key of the certificate, as a PEM file."),
    click.option(
        "--root-path",
        metavar="PATH",
        default="",
        help="Path prefix that a reverse proxy strips. [none]",
    ),
    click.option(
        "--api-key",
        "api_keys",
        multiple=True,
        metavar="KEY",
        help="Require this API key; repeatable. Other users of the machine can see it in the "
        "process list.",
    ),
    click.option(
        "--api-key-file",
        metavar="F",
        help="Require one of the keys in this file, one per line. [no key]",
    ),
    click.option(
        "--served-model-name",
        "served_model_names",
        multiple=True,
        metavar="NAME",
        help="Name of the model; repeatable, answers have the first one. [its folder's name]",
    ),
    STRICT_FIELDS_OPTION,
    click.option(
        "--chat-template",
        metavar="FILE",
        help="Render messages with this Jinja file. [the main model's template]",
    ),
    click.option(
        "--max-queue",
        type=int,
        metavar="N",
        default=128,
        show_default=True,
        help="Maximum waiting requests, besides running ones; others are rejected with 429.",
    ),
    click.option(
        "--queue-timeout",
        type=float,
        metavar="S",
        default=120.0,
        show_default=True,
        help="Maximum seconds in the queue; a request is then rejected with 503.",
    ),
    click.option(
        "--request-timeout",
        type=float,
        metavar="S",
        help="Maximum seconds of a request; it then ends with 504. [none]",
    ),
    click.option(
        "--max-request-tokens",
        type=int,
        metavar="N",
        default=131_072,
        show_default=True,
        help="Maximum tokens of a request: prompts, outputs and top log-probabilities of all "
        "choices; others are rejected with 400.",
    ),
    click.option(
        "--max-audio-seconds",
        type=float,
        metavar="S",
        default=3600.0,
        show_default=True,
        help="Maximum length of a recording in seconds; others are rejected with 400.",
    ),
    click.option(
        "--shutdown-timeout",
        type=float,
        metavar="S",
        default=30.0,
        show_default=True,
        help="Seconds for running requests to end after SIGTERM.",
    ),
    click.option(
        "--max-body-size",
        type=float,
        metavar="MB",
        help="Maximum body of a request in MB; others are rejected with 413. [4; 25 for "
        "recordings]",
    ),
    click.option(
        "--cors-origin",
        "cors_origins",
        multiple=True,
        metavar="URL",
        help="Allow pages of this web site to call the server; repeatable. [none]",
    ),
    click.option(
        "--allowed-hosts",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Accept requests for this host name; repeatable. [any; on a loopback address without "
        "keys: localhost, 127.0.0.1 and [::1]]",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        help="Minimum level of log messages.",
    ),
)


PREFIX = "OV_SPECDEC"
"""Of environment variables."""


def _with_variables(command: click.Command) -> click.Command:
    """Name the variable of each option by its flag, such as OV_SPECDEC_API_KEY for --api-key."""
    for option in command.params:
        flag = max(option.opts, key=len).removeprefix("--")
        option.envvar = f"{PREFIX}_{flag.replace('-', '_').upper()}"
    return command


@_with_variables
@click.command(context_settings={"auto_envvar_prefix": PREFIX})
@with_errors
@with_options(
    (
        CONFIG_OPTION,
        *SERVER_OPTIONS,
        *CLUSTER_OPTIONS,
        *LOADING_PIPELINE_OPTIONS,
        generation_config_option("model"),
        *BATCH_OPTIONS,
    )
)
def serve(log_level: str, **options: Any) -> None:
    """Serve the models over HTTP, with OpenAI's interface and a page to try them."""
    pipeline, cluster = pop_pipeline(options), pop_cluster(options)
    given = {name: options.pop(name) for name in BINDING}
    speech = is_speech(pipeline["main"])
    load: partial[Any] = partial(make_lasting_pipeline, pipeline)
    if speech:
        load = partial(make_speech_pipeline, speech_arguments(pipeline))
    settings = _make_settings(pipeline, speech, **options)
    if given["uds"] is None:
        settings = _guard(settings, given["host"])
        given["port"] = check_address(given["host"], given["port"]) or given["port"]
    announce = partial(click.echo, _url(given), file=sys.stdout)
    if cluster is None:
        if speech:
            require_libraries()
        _serve_alone(load, settings, log_level, given, announce)
    elif speech:
        raise OptionError("a speech model is served by one process: leave out --replicas")
    else:
        host, port, *others = BINDING
        if useless := [name for name in others if given[name]]:
            raise OptionError(
                Option(useless[0]), " has no effect with several replicas: leave it out"
            )
        _serve_replicas(cluster, pipeline, settings, log_level, given[host], given[port], announce)


def _guard(settings: "Settings", host: str) -> "Settings":
    """Settings for an address: without a key, restrict host names or print a warning."""
    if settings.api_keys:
        return settings
    if not is_loopback(host):
        click.echo(
            f"warning: anyone who can reach {host} can use this server: give --api-key-file",
            err=True,
        )
    elif not settings.allowed_hosts:
        return replace(settings, allowed_hosts=LOOPBACK_NAMES)
    return settings


def _url(binding: Mapping[str, Any]) -> str:
    """The server's URL."""
    if binding["uds"] is not None:
        return f"unix:{binding['uds']}"
    scheme = "http" if binding["ssl_certfile"] is None else "https"
    return f"{scheme}://{binding['host']}:{binding['port']}"


def _make_settings(
    pipeline: dict[str, Any],
    speech: bool,
    *,
    api_keys: tuple[str, ...],
    api_key_file: str | None,
    served_model_names: Sequence[str],
    max_body_size: float | None,
    **others: Any,
) -> "Settings":
    """The server's settings. speech: whether it takes recordings. others: fields of the same name.

    Raises `OptionError` for invalid values.
    """
    from ov_specdec.server.settings import Settings

    if max_body_size is None:
        max_body_size = MAX_RECORDING if speech else MAX_TEXT
    require_number("max_body_size", max_body_size, above=0.0)
    name, *aliases = served_model_names or [model_name(pipeline["main"])]
    return Settings(
        model_name=name,
        aliases=aliases,
        api_keys=(*api_keys, *_read_keys(api_key_file)),
        max_batch_size=pipeline["max_batch_size"],
        max_body=math.ceil(max_body_size * 1e6),
        **others,
    )


def _serve_alone(
    load: Callable[[], Any],
    settings: "Settings",
    log_level: str,
    binding: Mapping[str, Any],
    announce: Callable[[], None],
) -> None:
    try:
        from ov_specdec.server.logs import set_up_log
        from ov_specdec.server.run import Binding
        from ov_specdec.server.run import serve as run_server
    except ImportError as error:
        raise OptionError(
            f"the server needs fastapi, uvicorn, prometheus-client and python-multipart ({error}): "
            + install("serve")
        ) from error
    set_up_log(log_level)
    bound = Binding(**{**binding, "host": bare_host(binding["host"])})
    run_server(load, settings, bound, announce)


def _serve_replicas(
    cluster: ClusterOptions,
    pipeline: dict[str, Any],
    settings: "Settings",
    log_level: str,
    host: str,
    port: int,
    announce: Callable[[], None],
) -> None:
    try:
        from ov_specdec.cluster.application import ClusterArgs
        from ov_specdec.cluster.run import serve_replicas
    except ImportError as error:
        raise OptionError(
            f"several replicas need Ray Serve ({error}): {install('cluster')}"
        ) from error
    scale = None
    if cluster.autoscale is not None:
        low, high = cluster.autoscale
        scale = {"min_replicas": low, "initial_replicas": cluster.replicas, "max_replicas": high}
    given = asdict(settings)
    del given["max_batch_size"]  # an argument of the pipeline
    args = ClusterArgs.model_validate(
        {
            "replicas": cluster.replicas,
            "autoscale": scale,
            "pipeline": pipeline,
            "settings": given,
            "log_level": log_level,
        }
    )
    serve_replicas(args, bare_host(host), port, cluster.address, announce)


def _read_keys(file: str | None) -> list[str]:
    """The keys in a file, one per line; skips empty lines and lines that begin with #."""
    if file is None:
        return []
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--api-key-file '{file}' cannot be read: {error}") from error
    keys = [key for line in lines if (key := line.strip()) and not key.startswith("#")]
    if not keys:
        raise OptionError(f"--api-key-file '{file}' holds no key: write one per line")
    return keys
