"""Clients with a grant at a real edge's links: what they may do, and what they are made into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_worker.config import EdgeConfig
from edge_worker.guests import GRANTS_MAX, GuestLimits, Guests
from nearsay.lab.virtual_loop import run
from nearsay.runtime.link import LinkLimits, Peer, Stream, Transport, memory_pair
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import InvalidRequest, NearsayError
from nearsay.wire.grant import GRANT_S, SKEW_S, Grant, GrantKey
from nearsay.wire.messages import Hello, Message, Submit, Translate, Translated
from tests.edge_worker.room import Room, edge_room, now

SECRET = "between proxies and edges"
KEY = GrantKey(SECRET)
GRANT = Grant("acme", ("eu",), 0.0, "interactive", 100.0, 10_000.0, 10.0, 8)
CAT = "the cat sat on the mat"


def token(key: GrantKey = KEY, **fields: Any) -> str:
    return key.sign(msgspec.structs.replace(GRANT, **({"expires": now() + GRANT_S} | fields)))


@asynccontextmanager
async def guest(room: Room, shown: str) -> AsyncIterator[Peer]:
    """A client's link that shows something in its hello; up, or refused for good."""

    async def connect(_: str) -> Transport:
        near, far = memory_pair()
        room.tasks.spawn(room.edge.links.serve(far), name="guest link")
        return near

    peer = Peer(
        "ws://edge/link",
        hello=lambda: Hello("client", secret=shown),
        tasks=room.tasks,
        limits=LinkLimits(),
        clock=now,
        connect=connect,
    )
    await peer.start()
    await room.until(lambda: peer.ready or bool(peer.reason))
    try:
        yield peer
    finally:
        await peer.close()


async def ask(peer: Peer, text: str = CAT, **fields: Any) -> Translated:
    stream = await peer.open(Translate("r1", (text,), "en", "de", **fields))
    answer = await stream.receive()
    assert isinstance(answer, Translated)
    return answer


async def code_of(peer: Peer, message: Message) -> str:
    stream = await peer.open(message)
    with pytest.raises(NearsayError) as refused:
        await stream.receive()
    return refused.value.code


def with_room(folder: Path, test: Any, **config: Any) -> None:
    async def main() -> None:
        async with edge_room(folder, config={"secret": SECRET, "region": "eu", **config}) as room:
            await test(room)

    run(main())


def counted(room: Room, code: str) -> float:
    return float(room.edge.metrics.snapshot()["counters"].get(f"direct{{code={code}}}", 0.0))


def test_a_guest_is_answered_as_the_proxy_is(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with guest(room, token()) as peer:
            assert (await ask(peer)).translations == (await room.translate(CAT)).translations
        assert counted(room, "ok") == 1, "what the proxy asks for isn't counted as direct"

    with_room(tmp_path, test)


def test_strangers_and_forgers_do_not_come_in(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        late = now() + GRANT_S + SKEW_S + 1
        for shown in ("", "wrong", token()[:-4], token(GrantKey("x")), token(regions=("us",)), token(expires=late)):
            async with guest(room, shown) as peer:
                assert not peer.ready and peer.reason == "unauthorised", shown[:8]
        assert counted(room, "grant_invalid") == 4
        assert (await room.translate(CAT)).translations[0].text

    with_room(tmp_path, test)


def test_an_edge_without_a_region_takes_grants_for_all(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with guest(room, token(GrantKey("of its own"), regions=("us",))) as peer:
            assert (await ask(peer)).translations
        async with guest(room, token()) as peer:
            assert not peer.ready

    with_room(tmp_path, test, region="", grant_key="of its own")


def test_an_expired_grant_is_refused_by_name_and_a_new_one_goes_on(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with guest(room, token()) as peer:
            await ask(peer)
            await asyncio.sleep(GRANT_S + SKEW_S + 1)
            assert await code_of(peer, Translate("r", (CAT,), "en", "de")) == "grant_expired"
            await ask(peer, grant=token())
            assert await code_of(peer, Translate("r", (CAT,), "en", "de", grant="grant1.x")) == "grant_invalid"
        async with guest(room, token(expires=now() - SKEW_S - 1)) as peer:
            assert await code_of(peer, Translate("r", (CAT,), "en", "de")) == "grant_expired"

    with_room(tmp_path, test)


def test_a_guest_may_translate_and_nothing_else(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with guest(room, token()) as peer:
            for message, code in (
                (Submit("r", "m@1", "s", "t", b""), "invalid_request"),
                (Translate("r", ("x\0y",), "en", "de"), "invalid_text"),
                (Translate("r", ("x" * 50_001,), "en", "de"), "text_too_long"),
                (Translate("r", ("x",) * 257, "en", "de"), "text_too_long"),
                (Translate("r", ("x" * 50_000,) * 5, "en", "de"), "text_too_long"),
                (Translate("r", (CAT,), "en", "de", session="s" * 129), "text_too_long"),
            ):
                assert await code_of(peer, message) == code
            await ask(peer)

    with_room(tmp_path, test)


def test_its_share_is_its_tenants_over_all_links(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        small = {"requests_per_s": 1.0, "burst_s": 2.0}
        async with guest(room, token(**small)) as one, guest(room, token(**small, expires=now() + 50)) as two:
            await ask(one)
            await ask(two)
            assert await code_of(one, Translate("r", (CAT,), "en", "de")) == "rate_limited"
            assert await code_of(two, Translate("r", (CAT,), "en", "de")) == "rate_limited"
            async with guest(room, token(**small, tenant="other")) as third:
                await ask(third)
            await asyncio.sleep(1.1)
            await ask(two)

    with_room(tmp_path, test)


def test_guests_leave_room_for_proxies(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with guest(room, token()) as one, guest(room, token()) as two:
            async with guest(room, token()) as third:
                assert await third_is_refused(room, third)
            await ask(one)
            await ask(two)
            assert (await room.translate(CAT)).translations
            await two.close()
            await room.until(lambda: room.edge.links.links == 2)
            async with guest(room, token()) as third:
                await ask(third)

    async def third_is_refused(room: Room, peer: Peer) -> bool:
        await room.until(lambda: peer.reason == "too_many_links")
        return not peer.ready

    with_room(tmp_path, test, guest={"links_max": 2})


def test_a_cancelled_request_gives_its_place_back(tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with guest(room, token(concurrency_max=1)) as peer:
            stream = await peer.open(Translate("r", (CAT,), "en", "de"))
            assert await code_of(peer, Translate("r", (CAT,), "en", "de")) == "rate_limited"
            stream.cancel()
            await room.until(lambda: room.edge.links.in_flight == 0)
            await ask(peer)

    with_room(tmp_path, test)


class Owner:
    """A link as a stream sees it."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.hello = None

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


async def seen(message: Translate, **fields: Any) -> Translate:
    """What the pipeline gets of a guest's request."""
    found: list[Message] = []

    async def serve(stream: Stream) -> None:
        found.append(stream.message)

    options: dict[str, Any] = {"secret": SECRET, "grant_key": "", "region": "eu", "metrics": Metrics("edge")}
    guests = Guests(serve, GuestLimits(), clock=lambda: 0.0, wall=lambda: 100.0, **options)
    shown = token(expires=130.0, **fields)
    assert guests.authorise(shown) == shown
    await guests.serve(Stream(Owner(shown), 1, message))  # type: ignore[arg-type]
    assert isinstance(found[0], Translate)
    return found[0]


async def test_what_a_guest_says_of_itself_counts_for_nothing() -> None:
    asked = Translate("bad id\n", (CAT,), "en", "de", tenant="someone else", traceparent="x", budget_ms=1e12)
    message = await seen(asked)
    assert (message.tenant, message.request_id, message.traceparent) == ("acme", "", "")
    assert (message.budget_ms, message.grant, message.priority) == (600_000.0, "", "interactive")
    assert (await seen(asked, priority_max="batch")).priority == "batch"
    kept = msgspec.structs.replace(asked, request_id="r-1", budget_ms=500.0, priority="batch", session="s")
    message = await seen(kept)
    assert (message.request_id, message.budget_ms, message.priority, message.session) == ("r-1", 500.0, "batch", "s")


async def test_grants_remembered_are_bounded() -> None:
    options: dict[str, Any] = {"secret": SECRET, "grant_key": "", "region": "", "metrics": Metrics("edge")}

    async def serve(stream: Stream) -> None:
        raise AssertionError

    guests = Guests(serve, GuestLimits(), clock=lambda: 0.0, wall=lambda: 0.0, **options)
    for number in range(GRANTS_MAX + 10):
        assert guests.authorise(KEY.sign(msgspec.structs.replace(GRANT, expires=number / GRANTS_MAX)))
    assert len(guests._grants) == GRANTS_MAX


async def test_an_open_edge_on_loopback_has_no_guests() -> None:
    """Without a secret whoever comes is trusted already; there is nothing that could sign."""
    options: dict[str, Any] = {"secret": "", "grant_key": "", "region": "", "metrics": Metrics("edge")}

    async def serve(stream: Stream) -> None:
        raise InvalidRequest

    guests = Guests(serve, GuestLimits(), clock=lambda: 0.0, wall=lambda: 0.0, **options)
    assert guests.authorise("") == "" and guests.authorise(token(expires=1.0)) == ""
    assert EdgeConfig().grant_key == ""
