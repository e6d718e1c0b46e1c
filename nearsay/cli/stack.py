"""Proxy, edge worker and origin of one machine: their ports, configs and command lines. Starts nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from nearsay.cli.ports import DEFAULTS, HOST, ServicePorts, free_ports
from nearsay.cli.regions import REGIONS, Distance, routing_toml

MODULES = {"origin": "origin", "edge": "edge_worker", "proxy": "proxy"}  # in the order of their start

ConfigValue = str | int | Sequence[str]


class StackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between two stacks on one machine. Port 0 = any free one."""

    port: int = DEFAULTS["proxy"].port
    edge_port: int = DEFAULTS["edge"].port
    origin_port: int = DEFAULTS["origin"].port
    models: tuple[Path, ...] = ()
    with_origin: bool = True
    regions: int = 1  # with more than one, emulated ones: an edge worker in each
    overrides: Mapping[str, Mapping[str, ConfigValue]] = {}  # role to config fields


class Stack(msgspec.Struct, frozen=True):
    """Services to start, in order, with where they listen."""

    ports: dict[str, ServicePorts]
    commands: dict[str, tuple[str, ...]]
    hidden: frozenset[str]  # environment variables that would override what the configs must say
    distances: tuple[Distance, ...] = ()  # relays to start before them
    routing: Path | None = None  # the routing config, with regions

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return f"http://{HOST}:{self.ports['proxy'].port}"


def make_stack(options: StackOptions, folder: Path) -> Stack:
    """Choose ports, write one config a service into `folder`."""
    ports = choose_ports(options)
    distances = _distances(options, ports)
    routing = folder / "routing.toml" if distances else None
    if routing is not None:
        routing.write_text(routing_toml(distances), encoding="utf-8")
    commands: dict[str, tuple[str, ...]] = {}
    hidden = set()
    for name, config in _configs(options, ports, routing).items():
        role = _role(name)
        path = folder / f"{name}.toml"
        path.write_text(toml(config | dict(options.overrides.get(role, {}))), encoding="utf-8")
        commands[name] = (sys.executable, "-m", MODULES[role], "--config", str(path))
        hidden |= {f"NEARSAY_{role}_{field}".upper() for field in config}
    return Stack(ports, commands, frozenset(hidden), distances, routing)


def choose_ports(options: StackOptions) -> dict[str, ServicePorts]:
    """Both ports of each service: the one given and the next, or free ones. `--port 0` frees all of them.

    Edge workers of several regions have the ports after the first one's.
    """
    given = {"origin": options.origin_port} if options.with_origin else {}
    for number, name in enumerate(_edge_names(options)):
        given[name] = options.edge_port and options.edge_port + 2 * number
    given["proxy"] = options.port
    free = free_ports(2 * len(given))
    chosen = {}
    for name, wanted in given.items():
        port, admin_port = free.pop(), free.pop()
        fixed = wanted and options.port
        chosen[name] = ServicePorts(wanted, wanted + 1) if fixed else ServicePorts(port, admin_port)
    return chosen


def toml(fields: Mapping[str, ConfigValue]) -> str:
    """Flat TOML. JSON's strings, numbers and lists are TOML's too, but for a bare DEL."""
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())
    return "".join(lines).replace("\x7f", "\\u007f")


def _edge_names(options: StackOptions) -> list[str]:
    return ["edge"] if options.regions == 1 else [region.service for region in REGIONS[: options.regions]]


def _role(name: str) -> str:
    """`edge` of `edge-eu`."""
    return name.split("-")[0]


def _distances(options: StackOptions, ports: Mapping[str, ServicePorts]) -> tuple[Distance, ...]:
    if options.regions == 1:
        return ()
    emulated = REGIONS[: options.regions]
    taken = [port for doors in ports.values() for port in (doors.port, doors.admin_port)]
    relays = free_ports(len(emulated), but=taken)
    return tuple(Distance(region, port, ports[region.service]) for region, port in zip(emulated, relays, strict=True))


def _configs(
    options: StackOptions, ports: Mapping[str, ServicePorts], routing: Path | None
) -> dict[str, dict[str, ConfigValue]]:
    configs: dict[str, dict[str, ConfigValue]] = {
        name: {"host": HOST, "port": doors.port, "admin_port": doors.admin_port, "stop_with_stdin": True}
        for name, doors in ports.items()
    }
    if options.models:
        for name in configs.keys() - {"proxy"}:
            configs[name]["models"] = [str(folder.resolve()) for folder in options.models]
    for name in _edge_names(options):
        configs[name]["origins"] = [f"ws://{HOST}:{ports['origin'].port}/link"] if "origin" in ports else []
    if routing is None:
        configs["proxy"]["edges"] = [f"ws://{HOST}:{ports['edge'].port}/link"]
    else:
        configs["proxy"]["routing"] = str(routing)
    return configs
