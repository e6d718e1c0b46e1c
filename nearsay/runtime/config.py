"""Config of a process: one frozen struct a service, from defaults, file, environment, command line, in that order."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]  # uvloop takes a larger one modulo 65,536
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_SECRET_WORDS = ("secret", "password", "token", "key", "redis")  # a URL of Redis may hold a password
_LISTS = (list, tuple, set, frozenset)


class ConfigError(Exception):
    """The config is wrong; `problems` has one sentence for each mistake, all at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class ServiceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every service has. A service subclasses it, and redefines a field to change its default."""

    host: str = "127.0.0.1"
    port: Port = 0  # 0 = a free one, printed in the ready line
    admin_host: str = "127.0.0.1"
    admin_port: Port = 0
    secret: str = ""  # links must show it; "" is for loopback only
    trusted_hops: tuple[str, ...] = ()  # networks of our own load balancers: their word on a client's address counts
    proxy_protocol: bool = False  # each connection from a trusted hop begins with a PROXY header (v1 or v2)
    admin_secret: str = ""  # asked of who reads the admin port, as a Bearer token; "" is for loopback only
    tls_cert: Path | None = None  # PEM; with both the service port speaks TLS. They are read again when they change
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # clients must show a certificate of this authority
    peer_ca: Path | None = None  # who vouches for wss:// addresses that we open links to; the system's authorities
    peer_cert: Path | None = None  # what those links show
    peer_key: Path | None = None
    dscp: Annotated[int, msgspec.Meta(ge=0, le=63)] = 0  # mark of our packets (RFC 2474), for networks that look at it
    drain_timeout_s: Seconds = 20.0
    drain_idle_s: Seconds = 1.0  # idle connections are kept so long when draining: a request may be on its way
    keepalive_timeout_s: Seconds = 75.0  # for the next request's headers to arrive, also the first one's
    stop_with_stdin: bool = False  # drain when stdin ends: the process that holds its other end has gone
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "warning"


def load_config(path: Path | None, kind: type[T], overrides: Mapping[str, object] = {}) -> T:
    """Read a config. Raises ConfigError with every problem in it.

    The file is TOML; then NEARSAY_<SERVICE>_<FIELD> from the environment (`ProxyConfig` reads NEARSAY_PROXY_PORT); then
    `overrides`, whose keys may name a nested field with a dot. Strings from the last two become the field's type, lists
    are written as JSON or with commas.
    """
    problems: list[str] = []
    values = _read_file(path, problems)
    prefix = f"NEARSAY_{kind.__name__.removesuffix('Config').upper()}_"
    for field in msgspec.structs.fields(kind):
        if (text := os.environ.get(prefix + field.name.upper())) is not None:
            values[field.name] = text
    for key, value in overrides.items():
        _set(values, key.split("."), value)
    config = _build(kind, values, "", problems)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def redacted(config: msgspec.Struct) -> dict[str, Any]:
    """A config to show: whatever is named like a secret is starred out."""
    shown: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    return {name: _star(name, value) for name, value in shown.items()}


def _star(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {inner: _star(inner, v) for inner, v in value.items()}
    words = {form for word in name.lower().split("_") for form in (word, word.removesuffix("s"))}
    return "***" if value and not words.isdisjoint(_SECRET_WORDS) else value


def _read_file(path: Path | None, problems: list[str]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        problems.append(f"{path.name}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path.name}: {error}")
    return {}


def _set(values: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = values.get(key)
        values[key] = values = dict(inner) if isinstance(inner, dict) else {}
    values[keys[-1]] = value


def _build(kind: type[T], values: Mapping[str, Any], where: str, problems: list[str]) -> T | None:
    """One struct, its nested ones first, so that every problem is found and named by its full key."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key in values.keys() - fields.keys():
        near = difflib.get_close_matches(key, fields, 1)
        problems.append(f"unknown key {where + key!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    missing = [name for name, field in fields.items() if field.required and name not in values]
    problems += [f"{where + name!r} is missing" for name in missing]
    before = len(problems)
    built: dict[str, Any] = {}
    for name in fields.keys() & values.keys():
        value, wanted = values[name], fields[name].type
        if isinstance(value, Mapping) and isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            built[name] = _build(wanted, value, f"{where}{name}.", problems)
            continue
        try:
            built[name] = _convert(value, wanted)
        except (msgspec.ValidationError, ValueError) as error:
            problems.append(f"{where + name!r}: {error}")
    if missing or len(problems) > before:
        return None
    try:
        return kind(**built)
    except (ValueError, AssertionError) as error:
        problems.append(f"{where.rstrip('.') or kind.__name__}: {str(error) or 'values that do not fit together'}")
        return None


def _convert(value: Any, wanted: Any) -> Any:
    if not isinstance(value, str):
        return msgspec.convert(value, wanted, dec_hook=_hook)
    if value[:1] in ("[", "{") and wanted is not str:
        value = json.loads(value)
    elif typing.get_origin(wanted) in _LISTS:
        value = [part.strip() for part in value.split(",") if part.strip()]
    return msgspec.convert(value, wanted, strict=False, dec_hook=_hook)


def _hook(wanted: type, value: Any) -> Any:
    if wanted is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"expected {wanted.__name__}")
