"""Everything that can be set about a proxy, each default written once. Unknown keys are refused by the loader."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from nearsay.runtime.config import ConfigError, Port, Seconds, ServiceConfig
from nearsay.wire.limits import LinkLimits
from proxy.core.direct import DirectLimits
from proxy.core.forwarded import HopHeader
from proxy.core.limits import AnswerLimits, AttemptLimits, RequestLimits
from proxy.core.probes import ProbeLimits
from proxy.core.routing_config import DEFAULT_REGION, Region, RoutingConfig, Tenant


class ProxyConfig(ServiceConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One proxy process. `secret` is shown to the edges and, besides the keys, asked of SDKs on GET /link."""

    port: Port = 8100  # 0 = any free port
    admin_port: Port = 8101
    edges: tuple[str, ...] = ("ws://127.0.0.1:8110/link",)  # of the one region `default`
    routing: Path | None = None  # TOML file of regions, in place of `edges`; read again when it changes, and at SIGHUP
    keys: tuple[str, ...] = ()  # none = any key is accepted, on loopback only
    workers: Annotated[int, msgspec.Meta(ge=0, le=256)] = 0  # processes that a parent keeps; 0 = this one, without
    limits_redis: str = ""  # redis:// URL: tenants' limits hold for all proxies that name it
    in_flight_max: int = 1024  # requests being answered by one process; more are shed
    start_wait_s: Seconds = 5.0  # for a first edge before the proxy calls itself ready
    drain_timeout_s: Seconds = 30.0  # for requests in flight after SIGTERM
    hop_header: HopHeader = "x-forwarded-for"  # the one that the trusted hops write; the other one isn't read
    geoip: str = ""  # MMDB file: countries or cities; `nearsay geoip get` fetches one
    grant_key: str = ""  # signs grants for clients that ask edges directly; "" = the secret
    direct: DirectLimits = DirectLimits()
    probes: ProbeLimits = ProbeLimits()
    request: RequestLimits = RequestLimits()
    attempts: AttemptLimits = AttemptLimits()
    answer: AnswerLimits = AnswerLimits()
    link: LinkLimits = LinkLimits(backoff_max_s=1.0, ping_interval_s=1.0)  # a ping measures how far a region is


def routing_of(config: ProxyConfig, tenants: Mapping[str, Tenant] = {}) -> RoutingConfig:
    """What a proxy without a routing file goes by: one region, with no limit of its own."""
    region = Region(edges=config.edges, in_flight_max=config.in_flight_max)
    return RoutingConfig(regions={DEFAULT_REGION: region}, tenants=dict(tenants))


def check(config: ProxyConfig, tenants: Mapping[str, Tenant] = {}) -> ProxyConfig:
    """The rules that hold between fields. Raises ConfigError."""
    problems = []
    if not config.edges and config.routing is None:
        problems.append("edges: at least one url such as 'ws://127.0.0.1:8110/link' is needed")
    if not config.keys and not any(tenant.keys for tenant in tenants.values()) and not is_loopback(config.host):
        problems.append(f"keys: at least one is needed to listen on {config.host}; without keys only loopback is")
    if any(not key for key in config.keys):
        problems.append("keys: an empty key would let everybody in")
    if problems:
        raise ConfigError(problems)
    return config


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
