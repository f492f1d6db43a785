"""`ov-specdec devices`: list OpenVINO's devices on this machine."""

import click

from ov_specdec.cli.terminal import with_errors
from ov_specdec.loading.devices import list_devices
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.invariance import look_up
from ov_specdec.loading.locate import locate
from ov_specdec.loading.runtime_config import RuntimeConfig


@click.command()
@click.argument("model", required=False)
@with_errors
def devices(model: str | None) -> None:
    """List OpenVINO's devices: name, capabilities, and the KV cache of --kv auto.

    The last column says whether this package was measured on such a device, only simulated, or
    never run.

    With MODEL, it also shows whether the model's passes are batch-invariant there, if known.
    """
    folder = None if model is None else ModelFolder.read(locate(model))
    for device in list_devices():
        kv = "paged" if device.takes_paged else "stateful"
        columns = [device.name, device.full_name, " ".join(device.capabilities), f"kv {kv}"]
        columns.append(device.seen)
        if folder is not None:
            known = look_up(folder, RuntimeConfig(device.name))
            columns.append(f"batch invariant {known}")
        click.echo("\t".join(columns))
