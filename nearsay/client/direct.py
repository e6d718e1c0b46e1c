"""The SDK's direct link: beside the one to the proxy, one to the nearest edge, on a grant that is renewed in time.

Decides when a request may go direct. It never has to: whatever fails here, the proxy answers, and the edge is left
alone for a while. Everything but the request itself happens in the background.
"""

from __future__ import annotations

import asyncio
import random

import aiohttp

from nearsay.client.link import LinkTransport
from nearsay.client.request import Request
from nearsay.client.steering import Measured, ask_route, choose, probe
from nearsay.runtime.link import LinkLimits
from nearsay.runtime.tasks import Tasks
from nearsay.traffic.deadline import Deadline
from nearsay.wire.errors import InvalidRequest, NearsayError, RateLimited

RENEW_BEFORE_S = 20.0  # a grant's end, so that a proxy that is away for a moment costs nothing
RENEW_MIN_S = 5.0  # between two questions to the proxy, whatever it answers
REPROBE_S = 300.0
RETRY_FIRST_S, RETRY_MAX_S = 5.0, 300.0  # for a proxy that gives no grant, or edges that don't answer
LINK_WAIT_S = 3.0
PAUSE_S = 5.0  # after a failure that another request would meet, too
FIRST_EVENT_SHARE = 0.5  # of what is left of a deadline; the rest is for the proxy
# A dead path is noticed within seconds, not by a request that waits for it.
LIMITS = LinkLimits(ping_interval_s=1.0, ping_timeout_s=4.0, connect_timeout_s=3.0)


class Direct:
    """Owner of the direct link, which serves the pair of the first request and whatever else that edge has."""

    def __init__(self, url: str, *, key: str, rng: random.Random) -> None:
        self.address = ""  # of the present link, "" = none
        self._url = url
        self._key = key
        self._rng = rng
        self._tasks = Tasks()
        self._keeper: asyncio.Task[None] | None = None
        self._link: LinkTransport | None = None
        self._grant = ""
        self._grant_ends = 0.0
        self._paused_until = 0.0
        self._lost = asyncio.Event()

    def link(self, request: Request) -> LinkTransport | None:
        """The link for a request, None while it should go to the proxy. The first call begins to look for an edge."""
        now = _now()
        if self._keeper is None:
            pair = f"{request.source}-{request.target}"
            self._keeper = self._tasks.spawn(self._keep(pair), name="direct link")
        if self._link is None or not self._link.ready or now < self._paused_until or now >= self._grant_ends:
            return None
        return self._link if self._link.serves(request.source, request.target, request.tier) else None

    def first_event_by(self, request: Request) -> Deadline:
        """When a direct request must have shown something, or the proxy is asked."""
        now = _now()
        return Deadline.after_ms(request.deadline.remaining_ms(now) * FIRST_EVENT_SHARE, now)

    def failed(self, error: NearsayError) -> None:
        """A direct request failed; the proxy answers it now."""
        if isinstance(error, InvalidRequest) and not error.code.startswith("grant_"):
            return  # the request's own fault, as the proxy will say
        pause_s = PAUSE_S
        if isinstance(error, RateLimited) and error.retry_after_ms is not None:
            pause_s = min(PAUSE_S, error.retry_after_ms / 1000.0)
        else:
            self._lost.set()
        self._paused_until = max(self._paused_until, _now() + pause_s)

    async def close(self) -> None:
        """Close the link and end the task."""
        await self._tasks.close()
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _keep(self, pair: str) -> None:
        measured: list[Measured] = []
        probed_at, retry_s = float("-inf"), RETRY_FIRST_S
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
            while True:
                self._lost.clear()
                route = await ask_route(http, self._url, self._key, pair, measured)
                measured = []  # told once
                if route is not None and route.grant:
                    self._grant, self._grant_ends = route.grant, _now() + route.grant_s
                    if not self._up or _now() < self._paused_until or _now() >= probed_at + REPROBE_S:
                        measured, probed_at = await probe(http, route), _now()
                        await self._move(choose(measured, self.address))
                    elif not route.tells(self.address):
                        self._give_up()  # residency, or a new config: the grant isn't for this region any more
                if self._up:
                    retry_s = RETRY_FIRST_S
                    await self._renewal_due()
                else:
                    await asyncio.sleep(retry_s * self._rng.uniform(0.5, 1.0))
                    retry_s = min(RETRY_MAX_S, retry_s * 2)

    @property
    def _up(self) -> bool:
        return self._link is not None and self._link.ready

    async def _move(self, address: str | None) -> None:
        """Make the link to an address before the present one is given up; what is under way on that ends there."""
        if address is None or (address == self.address and self._up):
            return
        link = LinkTransport(address, grant=lambda: self._grant, limits=LIMITS)
        try:
            up = await link.wait_ready(LINK_WAIT_S)
        except BaseException:
            await link.close()
            raise
        if not up:
            return await link.close()
        self._give_up()
        link.on_change(lambda: self._changed(link))
        self._link, self.address = link, address

    def _give_up(self) -> None:
        previous, self._link, self.address = self._link, None, ""
        if previous is not None:
            self._tasks.spawn(previous.retire(), name="last direct streams")

    def _changed(self, link: LinkTransport) -> None:
        if link is self._link and not link.ready:
            self._lost.set()

    async def _renewal_due(self) -> None:
        """Wait until it is time to renew, or the link is lost or has failed a request."""
        try:
            async with asyncio.timeout(max(RENEW_MIN_S, self._grant_ends - _now() - RENEW_BEFORE_S)):
                await self._lost.wait()
        except TimeoutError:
            return
        await asyncio.sleep(RENEW_MIN_S * self._rng.uniform(0.5, 1.0))


def _now() -> float:
    return asyncio.get_running_loop().time()
