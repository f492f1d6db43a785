"""`ov-specdec devices`: list OpenVINO's devices on this machine."""

import click

from ov_specdec.checks.invariance import look_up
from ov_specdec.cli.declare import options_of
from ov_specdec.cli.models import PIPELINE, models_first
from ov_specdec.cli.terminal import with_errors
from ov_specdec.models.devices import list_devices
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import locate
from ov_specdec.models.runtime_config import RuntimeConfig


@click.command()
@with_errors
@models_first("main")
@options_of(PIPELINE, "main")
def devices(main: str | None) -> None:
    """List OpenVINO's devices: name, capabilities, and the KV cache of --kv auto.

    The last column says whether this package was measured on such a device, only simulated, or
    never run.

    With MAIN, it also shows whether the model's passes are batch-invariant there, if known.
    """
    folder = None if main is None else ModelFolder.read(locate(main))
    for device in list_devices():
        kv = "paged" if device.takes_paged else "stateful"
        capabilities = " ".join(device.capabilities)
        columns = [device.name, device.full_name, capabilities, f"kv {kv}", device.seen]
        if folder is not None:
            columns.append(f"batch invariant {look_up(folder, RuntimeConfig(device.name))}")
        click.echo("\t".join(columns))
