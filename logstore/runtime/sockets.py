"""Server sockets and addresses."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from logstore.errors import InvalidConfigurationError

LAST_PORT = 2**16 - 1


def opened_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to the first address of a host.

    Raises
    ------
    InvalidConfigurationError
        The address is unknown or in use.
    """
    if not 0 <= port <= LAST_PORT:
        raise InvalidConfigurationError(f"cannot listen on {host}:{port}: the port is out of range")
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
        except BaseException:
            opened.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidConfigurationError(f"cannot listen on {host}:{port}: {error}") from error
    return opened


def is_loopback(address: str) -> bool:
    """Return whether a numeric address can only be reached from this machine."""
    return ip_address(address.partition("%")[0]).is_loopback


def host_and_port(host: str, port: int) -> str:
    """Return an address in URL form, with IPv6 addresses in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
