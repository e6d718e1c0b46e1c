"""Round trips that clients measured, by the network they are in: what distance alone can't know.

Decides: how long a round trip from a network to a region is expected to take.
Must not know: addresses beyond their network (a reporter is a number), what is done with the estimate, clocks (`now` is
an argument, monotonic seconds).
Invariants: networks and reports are bounded, and reports age out; of one reporter only the latest counts; a tenant has
one vote, the median of its reporters', so that no key can outvote others by repeating itself. The expectation from
distance votes, too: one stranger alone never overrules it. A tenant's own vote counts double for itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from nearsay.wire.hops import Address

RTT_MS_MAX = 10_000.0
OWN_VOTE = 2.0

Network = tuple[int, int]  # IP version, leading bits of the address as a number


class ProbeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of the table."""

    networks_max: int = 10_000  # the one reported from longest ago is forgotten first
    reports_max: int = 12  # of a network and region
    ttl_s: float = 3600.0  # paths change within hours, not minutes


class Report(msgspec.Struct, frozen=True):
    """One reporter's latest word."""

    reporter: int
    tenant: str
    rtt_ms: float
    at: float


def network_of(address: Address) -> Network:
    """The /24 or /48 that an address is in: the smallest blocks that are routed by themselves."""
    return address.version, int(address) >> (8 if address.version == 4 else 80)


class _Reports:
    """Reports of one network about one region, and the vote of each tenant, made anew when either changes."""

    __slots__ = ("kept", "stale_at", "votes")

    def __init__(self, kept: list[Report], ttl_s: float) -> None:
        self.kept = kept
        self.stale_at = min((report.at for report in kept), default=0.0) + ttl_s
        by_tenant: dict[str, list[float]] = {}
        for report in kept:
            by_tenant.setdefault(report.tenant, []).append(report.rtt_ms)
        self.votes = {tenant: _middle(rtts_ms) for tenant, rtts_ms in by_tenant.items()}


class ProbeTable:
    """Single writer of all reports."""

    def __init__(self, limits: ProbeLimits) -> None:
        self._limits = limits
        self._networks: OrderedDict[Network, dict[str, _Reports]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._networks)

    def report(self, network: Network, reporter: int, tenant: str, rtts_ms: Mapping[str, float], now: float) -> int:
        """Take in round trips by region; how many were believable. Regions are the caller's to check."""
        good = {region: rtt_ms for region, rtt_ms in rtts_ms.items() if 0.0 < rtt_ms <= RTT_MS_MAX}
        if not good:
            return 0
        regions = self._networks.setdefault(network, {})
        self._networks.move_to_end(network)
        if len(self._networks) > self._limits.networks_max:
            self._networks.popitem(last=False)
        for region, rtt_ms in good.items():
            known = self._fresh(regions, region, now)
            kept = [r for r in known.kept if (r.reporter, r.tenant) != (reporter, tenant)] if known else []
            if len(kept) >= self._limits.reports_max:
                kept.remove(_crowding(kept))
            regions[region] = _Reports([*kept, Report(reporter, tenant, rtt_ms, now)], self._limits.ttl_s)
        return len(good)

    def estimate(self, network: Network, region: str, tenant: str, prior_ms: float | None, now: float) -> float | None:
        """Expected round trip in ms, None while nothing is known. `prior_ms`: what distance says."""
        regions = self._networks.get(network)
        reports = self._fresh(regions, region, now) if regions is not None else None
        if reports is None:
            return prior_ms
        votes = [(rtt_ms, OWN_VOTE if name == tenant else 1.0) for name, rtt_ms in reports.votes.items()]
        if prior_ms is not None:
            votes.append((prior_ms, 1.0))
        return _elected(votes, prior_ms)

    def _fresh(self, regions: dict[str, _Reports], region: str, now: float) -> _Reports | None:
        """What is known and not too old; the rest is forgotten here."""
        reports = regions.get(region)
        if reports is None or now <= reports.stale_at:
            return reports
        ttl_s = self._limits.ttl_s
        if kept := [report for report in reports.kept if now - report.at <= ttl_s]:
            regions[region] = reports = _Reports(kept, ttl_s)
            return reports
        del regions[region]
        return None


def _crowding(reports: list[Report]) -> Report:
    """The report to give up for a new one: the oldest of the tenant that has most, so that nobody is pushed out."""
    counts: dict[str, int] = {}
    for report in reports:
        counts[report.tenant] = counts.get(report.tenant, 0) + 1
    return max(reports, key=lambda report: (counts[report.tenant], -report.at))


def _middle(values: list[float]) -> float:
    """Lower median: waiting adds to a round trip, nothing takes from it."""
    return sorted(values)[(len(values) - 1) // 2]


def _elected(votes: list[tuple[float, float]], prior_ms: float | None) -> float:
    """Weighted median. Two values may share the middle: then the one nearer to the prior."""
    votes.sort()
    half, seen = sum([weight for _, weight in votes]) / 2.0, 0.0
    for position, (value, weight) in enumerate(votes):
        seen += weight
        if seen > half:
            return value
        if seen == half:
            other = votes[position + 1][0]
            nearer = prior_ms if prior_ms is not None else value
            return min((value, other), key=lambda rtt_ms: abs(rtt_ms - nearer))
    raise AssertionError("votes have weight")
