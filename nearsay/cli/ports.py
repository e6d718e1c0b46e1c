"""Default ports of the services on one machine, and what is free."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping

import msgspec

HOST = "127.0.0.1"


class ServicePorts(msgspec.Struct, frozen=True):
    """A service's two doors."""

    port: int
    admin_port: int


DEFAULTS: Mapping[str, ServicePorts] = {
    "proxy": ServicePorts(8100, 8101),
    "edge": ServicePorts(8110, 8111),
    "origin": ServicePorts(8120, 8121),
}


def in_use(port: int, host: str = HOST) -> bool:
    """Whether something listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def free_ports(count: int, host: str = HOST, *, but: Collection[int] = ()) -> list[int]:
    """Distinct free ports, none of `but`. They are held together, then let go: a moment's race, the price of restarts
    on one port."""
    sockets = [socket.socket() for _ in range(count + len(but))]
    try:
        for free in sockets:
            free.bind((host, 0))
        return [port for free in sockets if (port := free.getsockname()[1]) not in but][:count]
    finally:
        for free in sockets:
            free.close()
