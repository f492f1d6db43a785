"""`ov-specdec demo`: plain and speculative decoding side by side in a browser."""

from time import sleep
from typing import Any

import click

from ov_specdec.cli.address import check_address
from ov_specdec.cli.model_options import (
    BATCH_INVARIANT_OPTION,
    COMPILE_OPTIONS,
    DEVICE_OPTION,
    MODEL_OPTIONS,
    PAIRING_OPTION,
    PROFILE_OPTION,
    STATIC_SHAPES_OPTION,
    parse_invariance,
    parse_properties,
    parse_sizes,
    with_options,
)
from ov_specdec.cli.speech import is_speech, make_speech_pipeline, speech_arguments
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.demo.models import Choice, LoadedModels
from ov_specdec.demo.service import DemoService
from ov_specdec.demo.speech import SpeechService
from ov_specdec.errors import OptionError, install
from ov_specdec.loading.devices import list_devices
from ov_specdec.text.pairing import PairingName


@click.command()
@with_errors
@with_options((*MODEL_OPTIONS, PAIRING_OPTION, DEVICE_OPTION, PROFILE_OPTION, *COMPILE_OPTIONS))
@with_options((BATCH_INVARIANT_OPTION,))
@STATIC_SHAPES_OPTION
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option(
    "--port",
    type=int,
    metavar="N",
    help="Port to serve on; 0 takes any free port. [7860, or the next free port]",
)
@click.option("--share", is_flag=True, help="Make the page public through gradio's servers.")
def demo(host: str, port: int | None, share: bool, device: str, **options: Any) -> None:
    """Show plain and speculative decoding side by side in a browser."""
    port = check_address(host, port)
    try:
        from ov_specdec.demo.page import make_page
        from ov_specdec.demo.speech_page import make_speech_page
    except ImportError as error:
        raise OptionError(f"the demo needs gradio ({error}): {install('demo')}") from error
    options["properties"] = parse_properties(options["properties"]) or None
    options["static_shapes"] = parse_sizes(options["static_shapes"])
    options["batch_invariant"] = parse_invariance(options["batch_invariant"])
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
            f"no port of {host} from {port or 7860} on is free ({error}): choose another --port or "
            "--host"
        ) from error
    click.echo(shared or address)
    try:
        while True:
            sleep(3600)
    finally:
        service.close()
        stop_serving(page)
