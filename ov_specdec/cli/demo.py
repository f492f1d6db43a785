"""`ov-specdec demo`: plain and speculative decoding side by side in a browser."""

from time import sleep
from typing import Annotated, Any

import click

from ov_specdec.cli.address import check_address
from ov_specdec.cli.declare import options_of, own_options
from ov_specdec.cli.models import (
    COMPILATION,
    MODELS,
    PIPELINE,
    is_speech,
    make_speech_pipeline,
    speech_arguments,
)
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.demo.models import Choice, LoadedModels
from ov_specdec.demo.service import DemoService
from ov_specdec.demo.speech import SpeechService
from ov_specdec.description import About
from ov_specdec.errors import OptionError, requiring
from ov_specdec.loading.devices import list_devices
from ov_specdec.text.pairing import PairingName

FIRST_PORT = 7860
"""Gradio's default."""


@click.command()
@with_errors
@options_of(
    PIPELINE,
    *(*MODELS, "pairing", "device", "profile", *COMPILATION, "batch_invariant", "static_shapes"),
)
@own_options
def demo(
    *,
    host: Annotated[str, About("Address to serve on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        About(
            "Port to serve on; 0 takes any free port.", unset=f"{FIRST_PORT}, or the next free port"
        ),
    ] = None,
    share: Annotated[bool, About("Make the page public through gradio's servers.")] = False,
    device: str,
    **options: Any,
) -> None:
    """Show plain and speculative decoding side by side in a browser."""
    port = check_address(host, port)
    with requiring("the demo needs gradio", "demo"):
        from ov_specdec.demo.page import make_page
        from ov_specdec.demo.speech_page import make_speech_page
    if is_speech(options["main"]):
        arguments = speech_arguments({"device": device, **options})
        speech = SpeechService(make_speech_pipeline(arguments))
        _show(make_speech_page(speech), speech, host, port, share)
    else:
        names = [device, *(found.name for found in list_devices() if found.name != device)]
        text = DemoService(_load(device, **options))
        with console.status("Running an example"):
            page = make_page(text, names)
        _show(page, text, host, port, share)


def _load(
    device: str, main: str | None, draft: str | None, pairing: PairingName | None, **arguments: Any
) -> LoadedModels:
    """Load the models of the page's initial settings."""
    models = LoadedModels(main, draft, arguments, pairing)
    with console.status("Loading models"):
        models.get(Choice("model", device, device))
    return models


def _show(
    page: Any, service: DemoService | SpeechService, host: str, port: int | None, share: bool
) -> None:
    """Serve a page until Ctrl-C."""
    from ov_specdec.demo.page import launch_arguments, stop_serving

    try:
        _, address, shared = page.launch(
            server_name=host,
            server_port=port,
            share=share,
            quiet=True,
            prevent_thread_lock=True,
            **launch_arguments(),
        )
    except OSError as error:
        raise OptionError(
            f"no port of {host} from {port or FIRST_PORT} on is free ({error}): choose another "
            "--port or --host"
        ) from error
    click.echo(shared or address)
    try:
        while True:
            sleep(3600)
    finally:
        service.close()
        stop_serving(page)
