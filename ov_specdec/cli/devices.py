"""`ov-specdec devices`: what OpenVINO finds on this machine."""

import click

from ov_specdec.cli.terminal import with_errors
from ov_specdec.loading.devices import list_devices


@click.command()
@with_errors
def devices() -> None:
    """List OpenVINO's devices: name, capabilities, and the KV cache that --kv auto takes there."""
    for device in list_devices():
        kv = "paged" if device.takes_paged else "stateful"
        click.echo(f"{device.name}\t{device.full_name}\t{' '.join(device.capabilities)}\tkv {kv}")
