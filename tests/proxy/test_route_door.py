"""`GET /v1/route`: what a client is told, what it may tell, and what the grant lets it do."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.grant import GRANT_S, Grant, GrantKey
from nearsay.wire.hops import Address
from nearsay.wire.messages import Tier
from proxy.config import ProxyConfig
from proxy.core.direct import DirectLimits, granted
from proxy.core.probes import ProbeLimits, ProbeTable
from proxy.core.routing_config import Tenant
from proxy.core.steer import Target
from proxy.location import UNKNOWN, Place
from proxy.route_door import PROBES_MAX, RouteDoor, probe_url
from tests.kit.fake_edge import FakeEdge
from tests.kit.proxy_room import proxy_room
from tests.proxy.test_location import write

KEY = GrantKey("s")
PARIS = Place("FR", (48.9, 2.4), "city")
HERE = ipaddress.ip_address("203.0.113.7")
EU = Target("eu", ("wss://eu.example/link", "wss://eu2.example/link"), (50.1, 8.7))
US = Target("us", ("ws://us.example:8110/link",), (38.9, -77.5))
ASIA = Target("asia", ("wss://asia.example/x/link",), (1.3, 103.8))
HIDDEN = Target("hidden", (), (48.9, 2.4))


class Regions:
    """Regions as a test says; Germans are pinned to eu."""

    default_region = "us"

    def __init__(self, *targets: Target) -> None:
        self.all = targets or (US, ASIA, EU, HIDDEN)

    def targets(self, pair: str, tier: Tier, tenant: str, country: str) -> Sequence[Target]:
        return [target for target in self.all if target.name == "eu" or country != "DE"]

    def edges(self, region: str) -> int:
        return 2

    def tenant(self, name: str) -> Tenant:
        return Tenant(requests_per_s=24.0, priority_max="batch") if name == "acme" else Tenant()


def door(*targets: Target, key: GrantKey | None = KEY, limits: DirectLimits | None = None) -> RouteDoor:
    return RouteDoor(
        Regions(*targets),
        limits or DirectLimits(),
        ProbeTable(ProbeLimits()),
        key,
        metrics=Metrics("proxy"),
        clock=lambda: 0.0,
        wall=lambda: 1000.0,
    )


def ask(
    route: RouteDoor, place: Place = PARIS, tenant: str = "acme", address: Address | None = HERE, **query: str
) -> dict[str, Any]:
    return json.loads(route.answer({"pair": "en-de"} | query, tenant, address, place, "r1"))  # type: ignore[no-any-return]


def regions(answer: Mapping[str, Any]) -> list[str]:
    return [region["region"] for region in answer["regions"]]


def test_the_nearest_first_with_all_that_a_client_needs() -> None:
    answer = ask(door())
    assert regions(answer) == ["eu", "us", "asia"]
    assert answer["regions"][0]["addresses"] == [
        {"link": "wss://eu.example/link", "probe": "https://eu.example/probe"},
        {"link": "wss://eu2.example/link", "probe": "https://eu2.example/probe"},
    ]
    assert 5 < answer["regions"][0]["expected_ms"] < 20 and answer["regions"][0]["why"] == "distance"
    assert (answer["grant_s"], answer["request_id"]) == (GRANT_S, "r1")


def test_the_grant_is_for_what_was_told_and_no_more() -> None:
    answer = ask(door(limits=DirectLimits(addresses_max=2)))
    grant = KEY.verify(answer["grant"])
    assert (grant.tenant, grant.regions, grant.priority_max) == ("acme", ("eu", "us"), "batch")
    assert grant.expires == 1000.0 + GRANT_S
    # Half of the tenant's 24 a second over the six edges that its clients can be told of.
    assert grant.requests_per_s == pytest.approx(24.0 * 0.5 / 6)


def test_residency_is_obeyed_by_answer_and_grant() -> None:
    answer = ask(door(), Place("DE", (52.5, 13.4), "city"))
    assert regions(answer) == ["eu"] and KEY.verify(answer["grant"]).regions == ("eu",)


def test_without_a_key_or_a_region_there_is_no_grant() -> None:
    assert ask(door(key=None))["grant"] == "" and regions(ask(door(key=None))) == ["eu", "us", "asia"]
    answer = ask(door(HIDDEN))
    assert (answer["regions"], answer["grant"]) == ([], "")


def test_measurements_order_the_answers_to_their_network() -> None:
    route = door()
    assert regions(ask(route, probes="eu:180,us:20.5,asia:250"))[0] == "us"
    assert regions(ask(route, address=ipaddress.ip_address("203.0.113.200")))[0] == "us"
    assert regions(ask(route, address=ipaddress.ip_address("203.0.114.7")))[0] == "eu"
    assert regions(ask(route, tenant="other"))[0] == "eu", "one tenant's word alone is not enough"
    assert regions(ask(door(), address=None, probes="us:1"))[0] == "eu", "from nowhere nothing is taken"


def test_measurements_of_other_regions_are_dropped() -> None:
    route = door()
    ask(route, Place("DE", (52.5, 13.4), "city"), probes="us:1,nowhere:1,hidden:2")
    assert len(route._probes) == 0


@pytest.mark.parametrize(
    "query",
    [
        {"pair": ""},
        {"pair": "en"},
        {"pair": "en de-x"},
        {"pair": "e" * 64 + "-de"},
        {"tier": "best"},
        {"probes": "eu"},
        {"probes": "eu:-1"},
        {"probes": "eu:nan"},
        {"probes": "eu:1e9"},
        {"probes": "eu:1,"},
        {"probes": ",".join(["eu:1"] * (PROBES_MAX + 1))},
    ],
)
def test_a_query_that_makes_no_sense_is_told_so(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask(door(), **query)
    assert refused.value.code == "invalid_request" and next(iter(query)) in refused.value.detail


@given(st.dictionaries(st.sampled_from(["pair", "tier", "probes", "x"]), st.text(max_size=60)))
def test_any_query_is_answered_or_refused(query: dict[str, str]) -> None:
    try:
        answer = door().answer(query, "acme", HERE, UNKNOWN, "r")
    except InvalidRequest:
        return
    assert json.loads(answer)["grant"]


@pytest.mark.parametrize(
    ("link", "probe"),
    [
        ("wss://eu.example/link", "https://eu.example/probe"),
        ("ws://[::1]:81/link", "http://[::1]:81/probe"),
        ("wss://eu.example/edges/7/link", "https://eu.example/edges/7/probe"),
    ],
)
def test_where_to_probe(link: str, probe: str) -> None:
    assert probe_url(link) == probe


def test_rates_of_a_grant() -> None:
    free = granted("t", Tenant(), ["eu"], 4, DirectLimits(requests_per_s=7.0, chars_per_s=9.0, concurrency_max=3), 0.0)
    assert free == Grant("t", ("eu",), GRANT_S, "interactive", 7.0, 9.0, 10.0, 3)
    tenant = Tenant(requests_per_s=8.0, chars_per_s=1000.0, burst_s=2.0, concurrency_max=9)
    limited = granted("t", tenant, ["eu"], 4, DirectLimits(share=0.5), 0.0)
    assert (limited.requests_per_s, limited.chars_per_s, limited.burst_s) == (1.0, 125.0, 2.0)
    assert limited.concurrency_max == 1, "never none"
    assert granted("t", tenant, ["eu"], 0, DirectLimits(share=0.5), 0.0).requests_per_s == 4.0


async def test_over_http(tmp_path: Path) -> None:
    """Behind a trusted hop, with a database: keys are asked for, methods and countries are what they should be."""
    database = write(tmp_path / "geo.mmdb", {"20.0.0.0/8": {"country_code": "DE"}}, "country")
    config = ProxyConfig(keys=("k",), trusted_hops=("127.0.0.0/8",), geoip=str(database), secret="s")
    edge = FakeEdge(secret="s")
    async with proxy_room(edge, config=config) as room:
        seen: list[str] = []
        translate = room.proxy.service.translate

        async def spy(request: Any, call: Any, emit: Any = None) -> Any:
            seen.append(call.country)
            return await translate(request, call, emit)

        room.proxy.service.translate = spy  # type: ignore[method-assign]
        key = {"Authorization": "Bearer k"}
        async with room.http.get("/v1/route?pair=en-de", headers=key) as answer:
            assert answer.status == 200 and (await answer.json())["regions"] == []
        for headers in ({}, {"X-Forwarded-For": "20.1.2.3"}, {"Forwarded": "for=20.1.2.3"}):
            status, _, _ = await room.post({}, headers=key | headers)
            assert status == 200
        assert seen == ["", "DE", ""], "the header that isn't configured isn't read"
        async with room.http.get("/v1/route?pair=en-de") as answer:
            assert (answer.status, (await answer.json(content_type=None))["code"]) == (401, "unauthorised")
        async with room.http.get("/v1/route", headers=key) as answer:
            assert (answer.status, (await answer.json(content_type=None))["code"]) == (400, "invalid_request")
        async with room.http.post("/v1/route", headers=key) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, OPTIONS")
        assert "20.1.2.3" not in room.proxy.metrics.prometheus().decode()
