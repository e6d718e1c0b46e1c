from __future__ import annotations

import socket

from nearsay.cli.ports import free_ports, in_use


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert not any(in_use(port) for port in ports)


def test_ports_that_are_taken_already_are_left_out() -> None:
    taken = free_ports(3)
    assert not set(free_ports(200, but=taken)) & set(taken)


def test_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert in_use(server.getsockname()[1])
