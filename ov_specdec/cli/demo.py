"""`ov-specdec demo`: plain and speculative decoding side by side in a browser."""

from time import sleep
from typing import Any

import click

from ov_specdec.cli.declare import MODELS, command, options_of
from ov_specdec.cli.options import (
    COMPILATION,
    PIPELINE,
    is_speech,
    make_pipeline,
    make_speech_pipeline,
    prepare,
    speech_arguments,
    verify_invariance,
)
from ov_specdec.cli.terminal import console
from ov_specdec.errors import requiring
from ov_specdec.options.model import option
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.settings import LOOPBACK_NAMES, Host, check_address, in_url, is_loopback
from ov_specdec.speech_pipeline import SpeechPipeline


@command(
    "[MAIN] [DRAFT]",
    options_of(
        PIPELINE,
        *(*MODELS, "pairing", "device", "draft_device", "drafter", "profile", *COMPILATION),
        *("batch_invariant", "static_shapes"),
    ),
)
def demo(
    *,
    host: Host = option("127.0.0.1", "Address to serve on.", group="Address"),
    port: int | None = option(
        None,
        "Port to serve on; 0 takes any free port.",
        ge=0,
        le=65535,
        unset="7860, or the next free port",
    ),
    share: bool = option(False, "Make the page public through gradio's servers."),
    **options: Any,
) -> None:
    """Show plain and speculative decoding side by side in a browser."""
    port = check_address(host, port)
    with requiring("the demo needs gradio", "demo"):
        from ov_specdec.demo.page import make_page, make_speech_page
    models: SpeechPipeline | SpeculativePipeline
    if is_speech(options["main"]):
        models = make_speech_pipeline(speech_arguments(options))
        page = make_speech_page(models)
    else:
        # Both texts are shown as they come.
        models = make_pipeline({**options, "reasoning_parser": "none"})
        prepare(models)
        verify_invariance(models)
        with console.status("Running an example"):
            page = make_page(models)
    _show(page, models, host, port, share)


def _show(
    page: Any,
    models: SpeculativePipeline | SpeechPipeline,
    host: str,
    port: int | None,
    share: bool,
) -> None:
    """Serve a page until Ctrl-C."""
    from ov_specdec.demo.page import serving

    # As in `serve`: else a web site could reach the page by DNS rebinding.
    hosts = LOOPBACK_NAMES if is_loopback(host) and not share else ("*",)
    where = {"server_name": in_url(host), "server_port": port, "share": share}
    with serving(page, hosts, **where) as address, models:
        click.echo(address)
        while True:
            sleep(3600)
