"""Clients that ask this edge directly, with a grant from a proxy instead of the secret.

A guest is served as its proxy would have asked: in its tenant's name, in no higher class than the grant allows, within
the proxy's bounds on one request. Only `Translate` is taken. What is refused here is the proxy's to answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from edge_worker.core.grant_meter import GrantMeter
from nearsay.runtime.clock import Clock
from nearsay.runtime.link import Stream
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import InvalidRequest, NearsayError
from nearsay.wire.grant import Grant, GrantKey, check_time, is_grant
from nearsay.wire.harmless import harmless_id, harmless_trace
from nearsay.wire.messages import Translate
from nearsay.wire.session import Authorise, one_of

GRANTS_MAX = 4096  # verified ones remembered

Serve = Callable[[Stream], Awaitable[None]]


class GuestLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of guests. Those of one request are the proxy's defaults; larger ones go through the proxy."""

    links_max: int = 768  # of guests together; the other places are the proxies'
    texts_max: int = 256
    text_chars_max: int = 50_000
    total_chars_max: int = 200_000
    budget_ms_max: float = 600_000.0
    session_chars_max: int = 128


class Guests:
    """Says who comes in by which right, and stands between guests and `serve`."""

    def __init__(
        self,
        serve: Serve,
        limits: GuestLimits,
        *,
        secret: str,
        grant_key: str,
        region: str,
        metrics: Metrics,
        clock: Clock,
        wall: Clock,
    ) -> None:
        """`wall`: seconds since the epoch. Without `grant_key` the secret signs grants; without both there are none."""
        self._serve = serve
        self._limits = limits
        self._known: Authorise = one_of([secret] if secret else [])
        self._key = GrantKey(grant_key or secret) if grant_key or secret else None
        self._region = region
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._meter = GrantMeter()
        self._grants: OrderedDict[str, Grant] = OrderedDict()

    def authorise(self, shown: str) -> str | None:
        """`Authorise` of the edge's links: "" for who shows the secret, its token for a guest, None for strangers."""
        if self._key is None or not is_grant(shown):
            return self._known(shown)
        try:
            self._grant(shown)
        except InvalidRequest as error:
            self._count(error.code)
            # An expired one may come in: its streams are refused by name, which a closed link could not say.
            return shown if error.code == "grant_expired" else None
        return shown

    async def serve(self, stream: Stream) -> None:
        """Handler of the edge's links."""
        if not stream.who:
            return await self._serve(stream)
        try:
            await self._serve_guest(stream)
        except NearsayError as error:
            self._count(error.code)
            raise
        self._count("ok")

    async def _serve_guest(self, stream: Stream) -> None:
        message = stream.message
        if not isinstance(message, Translate):
            raise InvalidRequest("a grant is for Translate only")
        grant = self._grant(message.grant or stream.who)
        stream.message = self._as_granted(message, grant)
        self._meter.begin(grant, sum(map(len, message.texts)), self._clock())
        try:
            await self._serve(stream)
        finally:
            self._meter.end(grant)

    def _as_granted(self, message: Translate, grant: Grant) -> Translate:
        """The request as its proxy would have sent it. Raises InvalidRequest (text_too_long, invalid_text)."""
        limits = self._limits
        sizes = [len(text) for text in message.texts]
        if len(sizes) > limits.texts_max or max(sizes, default=0) > limits.text_chars_max:
            raise InvalidRequest("too much for a direct request", code="text_too_long")
        if sum(sizes) > limits.total_chars_max or len(message.session) > limits.session_chars_max:
            raise InvalidRequest("too much for a direct request", code="text_too_long")
        if any("\0" in text for text in message.texts):
            raise InvalidRequest("a text holds NUL", code="invalid_text")
        return msgspec.structs.replace(
            message,
            tenant=grant.tenant,
            grant="",
            done=(),  # what another edge answered is a proxy's to say
            models=(),
            priority="batch" if grant.priority_max == "batch" else message.priority,
            budget_ms=min(message.budget_ms, limits.budget_ms_max),
            request_id=harmless_id(message.request_id),
            traceparent=harmless_trace(message.traceparent),
        )

    def _grant(self, token: str) -> Grant:
        """A good grant for this edge that holds now. Raises InvalidRequest (grant_invalid, grant_expired)."""
        grant = self._grants.get(token)
        if grant is None:
            assert self._key is not None
            grant = self._key.verify(token)
            if self._region and self._region not in grant.regions:
                raise InvalidRequest("for other regions", code="grant_invalid")
            self._grants[token] = grant
            if len(self._grants) > GRANTS_MAX:
                self._grants.popitem(last=False)
        check_time(grant, self._wall())
        return grant

    def _count(self, code: str) -> None:
        self._metrics.count("direct", code=code)
