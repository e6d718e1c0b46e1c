"""Proxy, edge worker and origin of one machine: their ports, configs and command lines. Starts nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from nearsay.cli.ports import DEFAULTS, HOST, ServicePorts, free_ports

MODULES = {"origin": "origin", "edge": "edge_worker", "proxy": "proxy"}  # in the order of their start

ConfigValue = str | int | Sequence[str]


class StackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between two stacks on one machine. Port 0 = any free one."""

    port: int = DEFAULTS["proxy"].port
    edge_port: int = DEFAULTS["edge"].port
    origin_port: int = DEFAULTS["origin"].port
    models: tuple[Path, ...] = ()
    with_origin: bool = True
    overrides: Mapping[str, Mapping[str, ConfigValue]] = {}  # service name to config fields


class Stack(msgspec.Struct, frozen=True):
    """Services to start, in order, with where they listen."""

    ports: dict[str, ServicePorts]
    commands: dict[str, tuple[str, ...]]
    hidden: frozenset[str]  # environment variables that would override what the configs must say

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return f"http://{HOST}:{self.ports['proxy'].port}"


def make_stack(options: StackOptions, folder: Path) -> Stack:
    """Choose ports, write one config a service into `folder`."""
    ports = choose_ports(options)
    commands: dict[str, tuple[str, ...]] = {}
    hidden = set()
    for name, config in _configs(options, ports).items():
        path = folder / f"{name}.toml"
        path.write_text(toml(config | dict(options.overrides.get(name, {}))), encoding="utf-8")
        commands[name] = (sys.executable, "-m", MODULES[name], "--config", str(path))
        hidden |= {f"NEARSAY_{name}_{field}".upper() for field in config}
    return Stack(ports, commands, frozenset(hidden))


def choose_ports(options: StackOptions) -> dict[str, ServicePorts]:
    """Both ports of each service: the one given and the next, or free ones. `--port 0` frees all of them."""
    given = {"origin": options.origin_port, "edge": options.edge_port, "proxy": options.port}
    names = [name for name in MODULES if name != "origin" or options.with_origin]
    free = free_ports(2 * len(names))
    chosen = {}
    for name in names:
        port, admin_port = free.pop(), free.pop()
        fixed = given[name] and options.port
        chosen[name] = ServicePorts(given[name], given[name] + 1) if fixed else ServicePorts(port, admin_port)
    return chosen


def toml(fields: Mapping[str, ConfigValue]) -> str:
    """Flat TOML. JSON's strings, numbers and lists are TOML's too, but for a bare DEL."""
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())
    return "".join(lines).replace("\x7f", "\\u007f")


def _configs(options: StackOptions, ports: Mapping[str, ServicePorts]) -> dict[str, dict[str, ConfigValue]]:
    configs: dict[str, dict[str, ConfigValue]] = {
        name: {"host": HOST, "port": doors.port, "admin_port": doors.admin_port, "stop_with_stdin": True}
        for name, doors in ports.items()
    }
    if options.models:
        for name in configs.keys() - {"proxy"}:
            configs[name]["models"] = [str(folder.resolve()) for folder in options.models]
    configs["edge"]["origins"] = [f"ws://{HOST}:{ports['origin'].port}/link"] if "origin" in ports else []
    configs["proxy"]["edges"] = [f"ws://{HOST}:{ports['edge'].port}/link"]
    return configs
