"""Checks of the address of a page or server."""

import ipaddress
import socket
from pathlib import Path

from ov_specdec.errors import Option, OptionError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine in URLs."""


def check_address(host: str, port: int | None) -> int | None:
    """Refuse a host and port that cannot be bound. Returns the port.

    port: 0 takes a free one; None leaves the choice to the server. Raises `OptionError`.
    """
    address = bare_host(host)
    try:
        family, *_, found = socket.getaddrinfo(address, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.create_server(found[:2], family=family) as server:
            return int(server.getsockname()[1]) if port == 0 else port
    except (OSError, UnicodeError) as error:
        shown = f"--host '{host}'" if port is None else f"--host '{host}' --port {port}"
        reason, *_ = str(error.args[-1]).split(" (while")  # the address is named already
        raise OptionError(
            f"{shown} cannot be used ({reason}): choose another --port, or an address of this "
            "machine, such as 127.0.0.1"
        ) from error


def check_socket(path: str) -> None:
    """Refuse the path of a Unix socket that cannot be made. Raises `OptionError`."""
    file = Path(path)
    if file.is_socket():  # of a server that was killed: it is replaced
        return
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
        file.unlink()
    except OSError as error:
        reason = f" cannot be used ({error.strerror or error}): give another path"
        raise OptionError(Option("uds", path), reason) from error


def bare_host(host: str) -> str:
    """A host without the brackets that an IPv6 address has in a URL."""
    return host.removeprefix("[").removesuffix("]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    address = bare_host(host)
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
