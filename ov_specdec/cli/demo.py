"""`ov-specdec demo`: plain and speculative decoding side by side in a browser."""

from time import sleep
from typing import Any

import click

from ov_specdec.cli.address import check_address
from ov_specdec.cli.options import (
    COMPILE_OPTIONS,
    DEVICE_OPTION,
    MODEL_OPTIONS,
    PAIRING_OPTION,
    PROFILE_OPTION,
    fixed_sizes_option,
    parse_properties,
    parse_sizes,
    with_options,
)
from ov_specdec.cli.speech import is_speech, make_speech_pipeline, speech_arguments
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.demo.models import Choice, LoadedModels
from ov_specdec.demo.service import DemoService
from ov_specdec.demo.speech import SpeechService
from ov_specdec.errors import OptionError
from ov_specdec.loading.devices import list_devices
from ov_specdec.text.pairing import PairingName


@click.command()
@with_errors
@with_options((*MODEL_OPTIONS, PAIRING_OPTION, DEVICE_OPTION, PROFILE_OPTION, *COMPILE_OPTIONS))
@fixed_sizes_option("auto")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option(
    "--port",
    type=int,
    metavar="N",
    help="Port to serve on; 0 takes any that is free. [7860, or the next free]",
)
@click.option("--share", is_flag=True, help="Offer the page to others, through gradio's servers.")
def demo(
    main: str | None,
    draft: str | None,
    pairing: PairingName | None,
    device: str,
    profile: str,
    precision: str,
    properties: tuple[str, ...],
    fixed_sizes: str,
    host: str,
    port: int | None,
    share: bool,
) -> None:
    """Show plain and speculative decoding side by side in a browser."""
    port = check_address(host, port)
    try:
        from ov_specdec.demo.page import launch_arguments, make_page, stop_serving
        from ov_specdec.demo.speech_page import make_speech_page
    except ImportError as error:
        raise OptionError(
            f"the demo needs gradio ({error}): pip install 'ov-specdec[demo]'"
        ) from error
    arguments: dict[str, Any] = {
        "profile": profile,
        "precision": precision,
        "properties": parse_properties(properties) or None,
        "fixed_sizes": parse_sizes(fixed_sizes),
    }
    service: DemoService | SpeechService
    if is_speech(main):
        models = {"main": main, "draft": draft, "pairing": pairing, "device": device}
        service = SpeechService(make_speech_pipeline(speech_arguments({**models, **arguments})))
        page = make_speech_page(service)
    else:
        loaded = LoadedModels(main, draft, arguments, pairing)
        with console.status("Loading models"):
            loaded.get(Choice("model", device, device))
        names = [device, *(found.name for found in list_devices() if found.name != device)]
        service = DemoService(loaded)
        page = make_page(service, names)
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
            f"no port of {host} is free, from {port or 7860} on ({error}): choose another --port "
            "or --host"
        ) from error
    click.echo(shared or address)
    try:
        while True:  # until Ctrl-C
            sleep(3600)
    finally:
        service.close()
        stop_serving(page)
