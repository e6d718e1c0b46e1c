"""TLS of doors and links: what is spoken, who is let in, and certificates that change under open connections."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from nearsay.runtime import doors, tls
from nearsay.runtime.config import ConfigError, ServiceConfig
from nearsay.runtime.doors import Door, bind, http_runner
from nearsay.runtime.link import Dial, LinkServer, Peer
from nearsay.runtime.service import check_doors, loop_factory
from nearsay.runtime.tasks import Tasks
from nearsay.runtime.tls import DoorTls, LinkTls
from nearsay.wire.messages import Hello
from tests.kit.certificates import Authority
from tests.runtime.kit import FAST, TIMEOUT_S, answer, ask, until
from tests.runtime.test_server import echo
from tests.runtime.test_service import Demo, running


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@asynccontextmanager
async def door(made: DoorTls) -> AsyncIterator[int]:
    """The demo's routes behind TLS; the port."""
    demo = Demo()
    listening = Door(await http_runner(demo.routes(), demo.config))
    try:
        yield await listening.open(bind("127.0.0.1", 0), made)
    finally:
        await listening.close()


async def shown(port: int, client: ssl.SSLContext, name: str = "127.0.0.1") -> bytes:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    assert isinstance(certificate, bytes)
    return certificate


async def is_let_in(port: int, client: ssl.SSLContext) -> bool:
    """Whether a request is answered. With TLS 1.3 a server refuses a certificate only after the handshake."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"https://127.0.0.1:{port}/quick", ssl=client) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def test_a_service_speaks_https_and_nothing_old(tmp_path: Path, authority: Authority) -> None:
    cert, key = authority.write_pair(tmp_path, "door")
    async with running(Demo(ServiceConfig(tls_cert=cert, tls_key=key))) as service:
        port = int(str(service.line["port"]))
        modern = authority.client()
        modern.set_alpn_protocols(["h2", "http/1.1"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=modern)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.write(b"GET /quick HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), TIMEOUT_S)).endswith(b"quick")
        writer.close()
        old = authority.client()
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.deprecated_call():
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shown(port, old)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in await asyncio.wait_for(reader.read(), TIMEOUT_S), "no plain HTTP on a TLS port"
        writer.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, loop_factory()], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"], ids=["without SNI", "with SNI"])
def test_a_new_certificate_is_shown_from_the_next_handshake_on(
    tmp_path: Path, authority: Authority, name: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_renewed(tmp_path, authority, name))


async def _renewed(tmp_path: Path, authority: Authority, name: str) -> None:
    pair = authority.write_pair(tmp_path, "door")
    made = DoorTls(*pair, None)
    async with door(made) as port:
        client = authority.client()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        first = await shown(port, client, name)
        authority.write_pair(tmp_path, "door")
        assert await shown(port, client, name) == first, "nobody has looked yet"
        made.reload()
        second = await shown(port, client, name)
        assert second != first
        writer.write(b"GET /quick HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"quick"), "the connection that was open is as good as ever"
        writer.close()


async def test_a_signal_or_time_makes_a_service_look(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for how in ("signal", "time"):
        monkeypatch.setattr(tls, "WATCH_S", 3600.0 if how == "signal" else 0.001)
        cert, key = authority.write_pair(tmp_path, how)
        async with running(Demo(ServiceConfig(tls_cert=cert, tls_key=key))) as service:
            port, client = int(str(service.line["port"])), authority.client()
            first = await shown(port, client)
            authority.write_pair(tmp_path, how)
            if how == "signal":
                os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(TIMEOUT_S):
                while await shown(port, client) == first:
                    pass


async def test_files_that_can_not_be_used_leave_the_last_good_ones(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.write_pair(tmp_path, "door")
    made = DoorTls(cert, key, None)
    async with door(made) as port:
        client = authority.client()
        first = await shown(port, client)
        other, _ = authority.write_pair(tmp_path, "other")
        for spoil in (lambda: cert.write_text("no certificate"), cert.unlink, lambda: os.replace(other, cert)):
            spoil()
            for _ in range(3):
                made.reload()
            assert await shown(port, client) == first
        assert len([r for r in caplog.records if "last good" in r.getMessage()]) == 3, "each once"
        os.replace(tmp_path / "other.key", key)
        made.reload()
        assert await shown(port, client) != first


async def test_with_an_authority_only_its_clients_are_let_in_also_after_it_changed(
    tmp_path: Path, authority: Authority
) -> None:
    old, new = Authority(), Authority()
    by_old, by_new = old.write_pair(tmp_path, "old"), new.write_pair(tmp_path, "new")
    ca = old.write_ca(tmp_path / "ca.pem")
    made = DoorTls(*authority.write_pair(tmp_path, "door"), ca)
    async with door(made) as port:
        clients = [authority.client(), authority.client(by_old), authority.client(by_new)]
        assert [await is_let_in(port, client) for client in clients] == [False, True, False]
        new.write_ca(ca)
        made.reload()
        assert [await is_let_in(port, client) for client in clients] == [False, False, True]


async def test_who_says_nothing_in_a_handshake_is_cut_off(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with door(DoorTls(*authority.write_pair(tmp_path, "door"), None)) as port:
        for said in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
            writer.close()
        assert await is_let_in(port, authority.client())


@pytest.mark.parametrize("spoilt", ["missing", "mixed up", "no PEM", "locked"])
def test_a_service_does_not_start_with_files_it_can_not_use(tmp_path: Path, authority: Authority, spoilt: str) -> None:
    cert, key = authority.write_pair(tmp_path, "door")
    match spoilt:
        case "missing":
            key.unlink()
        case "mixed up":
            _, key = authority.write_pair(tmp_path, "other")
        case "no PEM":
            cert.write_text("hello")
        case "locked":
            private = load_pem_private_key(key.read_bytes(), None)
            locked = BestAvailableEncryption(b"password")
            key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    with pytest.raises(ConfigError, match=r"door\.pem"):
        DoorTls(cert, key, None)


def test_half_of_a_pair_is_told() -> None:
    lonely = ServiceConfig(tls_key=Path("k"), tls_client_ca=Path("c"), peer_cert=Path("p"))
    with pytest.raises(ConfigError) as caught:
        check_doors(lonely)
    assert [problem.split("'")[1] for problem in caught.value.problems] == ["tls_cert", "tls_client_ca", "peer_cert"]


async def test_links_show_certificates_and_ask_for_them(tmp_path: Path) -> None:
    """What runs between tiers: both sides know each other by certificates of the operator's authority."""
    ours, strangers = Authority(), Authority()
    ca = ours.write_ca(tmp_path / "ca.pem")
    edge, proxy = ours.write_pair(tmp_path, "edge"), ours.write_pair(tmp_path, "proxy")
    stranger = strangers.write_pair(tmp_path, "stranger")
    tasks = Tasks()
    server = LinkServer(hello=lambda: Hello("edge"), handler=echo, tasks=tasks, limits=FAST, clock=time.monotonic)
    app_door = Door(await http_runner([aiohttp.web.get("/link", server.handle)], ServiceConfig()))
    port = await app_door.open(bind("127.0.0.1", 0), DoorTls(*edge, ca))

    def peer(dial: Dial) -> Peer:
        return Peer(
            f"wss://127.0.0.1:{port}/link",
            hello=lambda: Hello("proxy"),
            tasks=tasks,
            limits=FAST,
            clock=time.monotonic,
            dial=dial,
        )

    friend = peer(Dial(LinkTls(ca, *proxy), dscp=10))
    lonely = [peer(Dial()), peer(Dial(LinkTls(ca, None, None))), peer(Dial(LinkTls(ca, *stranger)))]
    try:
        for one in (friend, *lonely):
            await one.start()
        await until(friend.on_change, lambda: friend.ready)
        assert await (await friend.open(ask())).receive() == answer()
        for one in lonely:
            await until(one.on_change, lambda one=one: bool(one.reason))  # type: ignore[misc]
            assert not one.ready
    finally:
        for one in (friend, *lonely):
            await one.close()
        await server.drain(0.0)
        await app_door.close()
        await tasks.close()


async def test_packets_are_marked_at_both_ends() -> None:
    marks: list[int] = []

    async def look(request: aiohttp.web.Request) -> aiohttp.web.Response:
        assert request.transport is not None
        accepted = request.transport.get_extra_info("socket")
        marks.append(accepted.getsockopt(socket.IPPROTO_IP, socket.IP_TOS))
        return aiohttp.web.Response()

    for dscp in (0, 46):
        marked = Door(await http_runner([aiohttp.web.get("/", look)], ServiceConfig()))
        port = await marked.open(bind("127.0.0.1", 0, dscp=dscp))
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/") as response:
            assert response.status == 200
        await marked.close()
    assert marks == [0, 46 << 2]
    with socket.socket(socket.AF_INET6) as six:
        doors.mark(six, 46)
        assert six.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) == 46 << 2
