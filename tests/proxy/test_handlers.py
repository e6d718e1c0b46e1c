from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import aiohttp
import pytest

from nearsay.wire.errors import InvalidRequest, Overloaded
from nearsay.wire.messages import STAGES
from proxy.compress import CODINGS, compress_now
from proxy.config import ProxyConfig
from proxy.core.limits import AnswerLimits, AttemptLimits, RequestLimits
from tests.kit.fake_edge import FakeEdge, echo, model, refuse, silence
from tests.kit.proxy_room import ProxyRoom, proxy_room

BODY = {"text": "good morning", "source": "en", "target": "de"}


async def test_one_text_one_answer() -> None:
    async with proxy_room(FakeEdge()) as room:
        status, answer, headers = await room.post({}, headers={"X-Request-ID": "mine-1"})
        assert status == 200
        [translation] = answer["translations"]
        assert translation == {"text": "GOOD MORNING", "source": "en", "tier": "edge", "model": "fake@1"}
        assert answer["request_id"] == headers["X-Request-ID"] == "mine-1"
        assert headers["Content-Type"] == "application/json"
        assert set(answer["stages_ms"]) == {"parse", "queue", "link", "edge_run", "render", "unaccounted"}
        assert [entry.split(";")[0] for entry in headers["Server-Timing"].split(", ")] == [
            *(stage for stage in STAGES if stage in answer["stages_ms"]),
            "total",
        ]


async def test_lists_segments_and_options_pass_through() -> None:
    edge = FakeEdge(origin_pairs=("en-de",))
    async with proxy_room(edge) as room:
        fields = {"text": ["one", "two"], "segments": True, "tier": "origin", "priority": "batch", "session": "s1"}
        trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        status, answer, _ = await room.post(fields, headers={"traceparent": trace})
        assert status == 200
        assert [t["text"] for t in answer["translations"]] == ["ONE", "TWO"]
        assert answer["translations"][0]["segments"][0]["end"] == 3
        [seen] = edge.requests
        assert (seen.tier, seen.priority, seen.session, seen.traceparent) == ("origin", "batch", "s1", trace)
        assert 119_000 < seen.budget_ms <= 120_000
        assert (seen.attempt, seen.attempts_left) == (1, 2)


async def test_harmful_ids_are_replaced() -> None:
    async with proxy_room(FakeEdge()) as room:
        for harmful in ("a b", "x" * 65, 'a"b', "é"):
            _, answer, headers = await room.post({}, headers={"X-Request-ID": harmful})
            assert answer["request_id"] == headers["X-Request-ID"] != harmful


async def test_every_refusal_is_a_problem() -> None:
    async with proxy_room(FakeEdge()) as room:
        refusals: list[tuple[dict[str, Any], str, int]] = [
            ({"text": ""}, "empty_text", 400),
            ({"text": 5}, "invalid_request", 400),
            ({"source": "auto"}, "detection_unavailable", 400),
            ({"target": "xx"}, "unknown_language", 400),
            ({"source": "de", "target": "en"}, "unsupported_pair", 400),
            ({"tier": "origin"}, "tier_unavailable", 400),
            ({"text": "x" * 1_000_000}, "text_too_long", 413),
            ({"text": "a\0"}, "invalid_text", 400),
            ({"text": "a\ud800"}, "invalid_text", 400),
        ]
        for fields, code, status in refusals:
            got, problem, headers = await room.post(fields)
            assert (got, problem["code"], problem["status"]) == (status, code, status)
            assert headers["Content-Type"] == "application/problem+json"
            assert problem["request_id"] == headers["X-Request-ID"]
        assert room.edges[0].requests == []


async def test_an_edges_refusal_comes_through_as_it_is() -> None:
    error = InvalidRequest("segment 3", code="source_too_long")
    async with proxy_room(FakeEdge(refuse(error))) as room:
        status, problem, _ = await room.post({})
        assert (status, problem["code"], problem["detail"]) == (413, "source_too_long", "segment 3")


async def test_retry_after_comes_through() -> None:
    async with proxy_room(FakeEdge(refuse(Overloaded(retry_after_ms=2500.0)))) as room:
        status, problem, headers = await room.post({})
        assert (status, problem["retry_after_ms"], headers["Retry-After"]) == (503, 2500.0, "3")


async def test_other_paths_and_methods() -> None:
    async with proxy_room(FakeEdge()) as room:
        for method, path, status, allow in [
            ("GET", "/", 404, None),
            ("POST", "/v1/translate/", 404, None),
            ("GET", "/v1/translate", 405, "POST, OPTIONS"),
            ("HEAD", "/v1/translate", 405, "POST, OPTIONS"),
            ("DELETE", "/v1/models", 405, "GET, HEAD, OPTIONS"),
            ("POST", "/link", 405, "GET, OPTIONS"),
            ("OPTIONS", "/v1/translate", 204, "POST, OPTIONS"),
            ("OPTIONS", "/nowhere", 404, None),
            ("GET", "/link", 400, None),
            ("PATCH", "/v1/models", 405, "GET, HEAD, OPTIONS"),
        ]:
            async with room.http.request(method, path) as answer:
                assert (answer.status, answer.headers.get("Allow")) == (status, allow), (method, path)
                body = await answer.read()
                if status >= 400 and method != "HEAD":
                    assert json.loads(body)["status"] == status
                    assert answer.headers["Content-Type"] == "application/problem+json"
                else:
                    assert body == b""


async def test_a_handshake_that_is_none_and_one_that_comes_too_late() -> None:
    async with proxy_room(FakeEdge()) as room:
        for headers, status in (({"Upgrade": "websocket"}, 400), ({}, 400)):
            async with room.http.get("/link", headers={"Connection": "Upgrade", **headers}) as answer:
                assert (answer.status, (await answer.json(content_type=None))["code"]) == (status, "invalid_request")
        room.proxy.lifecycle.move("draining")
        await room.proxy.drain()
        async with room.http.get("/link", headers={"Upgrade": "websocket"}) as answer:
            assert (answer.status, (await answer.json(content_type=None))["code"]) == (503, "unavailable")


async def test_languages_and_models() -> None:
    edge = FakeEdge(models=[model("en", "de"), model("en", "pt")], origin_pairs=("en-pt",))
    async with proxy_room(edge) as room:
        async with room.http.get("/v1/languages") as answer:
            [english] = (await answer.json())["languages"]
            assert english["targets"] == [
                {"code": "de", "tiers": ["edge"]},
                {"code": "pt", "tiers": ["edge", "origin"]},
            ]
        async with room.http.get("/v1/models") as answer:
            assert [m["id"] for m in (await answer.json())["data"]] == ["en-de-edge@1", "en-pt-edge@1"]
        async with room.http.head("/v1/models") as answer:
            assert answer.status == 200
            assert int(answer.headers["Content-Length"]) > 0
            assert await answer.read() == b""


@pytest.mark.parametrize("coding", CODINGS)
async def test_large_answers_are_compressed_on_request(coding: str) -> None:
    async with proxy_room(FakeEdge()) as room:
        headers = {"Accept-Encoding": coding, "Content-Type": "application/json"}
        body = json.dumps(BODY | {"text": "good morning " * 500}).encode()
        async with room.http.post("/v1/translate", data=body, headers=headers) as answer:
            assert answer.headers["Content-Encoding"] == coding
            assert answer.headers["Vary"] == "Accept-Encoding"
            packed = await answer.read()
            assert len(packed) < 1500
        async with room.http.post("/v1/translate", data=json.dumps(BODY), headers=headers) as answer:
            assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("coding", CODINGS)
async def test_request_bodies_may_be_compressed(coding: str) -> None:
    async with proxy_room(FakeEdge()) as room:
        headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
        packed = compress_now(json.dumps(BODY).encode(), coding, AnswerLimits())
        status, answer, _ = await room.post({}, data=packed, headers=headers, json=None)
        assert (status, answer["translations"][0]["text"]) == (200, "GOOD MORNING")


@pytest.mark.parametrize("coding", [*CODINGS, "deflate"])
async def test_bombs_are_refused_at_the_door(coding: str) -> None:
    """Also that aiohttp's own inflating of request bodies, which knows no bound of ours, is off."""
    async with proxy_room(FakeEdge()) as room:
        zeros = bytes(50_000_000)
        bomb = compress_now(zeros, coding, AnswerLimits()) if coding in CODINGS else zlib.compress(zeros)
        headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
        status, problem, answered = await room.post({}, data=bomb, headers=headers, json=None)
        if coding == "deflate":
            assert (status, problem["code"]) == (415, "unsupported_media_type")
            assert answered["Accept-Encoding"] == "br, zstd, gzip"
        else:
            assert (status, problem["code"]) == (413, "body_too_large")


async def test_a_body_over_the_limit_is_refused_with_and_without_a_length() -> None:
    async def chunks() -> Any:
        for _ in range(100):
            yield b"x" * 1000

    config = ProxyConfig(request=RequestLimits(body_bytes_max=10_000))
    async with proxy_room(FakeEdge(), config=config) as room:
        for data in (b"x" * 10_001, chunks()):
            status, problem, _ = await room.post({}, data=data, headers={"Content-Type": "application/json"}, json=None)
            assert (status, problem["code"]) == (413, "body_too_large")
        assert (await room.post({}))[0] == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=UTF-8", 200),
        ("application/vnd.api+json", 200),
        ("application/json; charset=utf-16", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
async def test_only_json_in_utf_8_is_read(content_type: str, status: int) -> None:
    async with proxy_room(FakeEdge()) as room:
        got, answer, _ = await room.post(json.dumps(BODY).encode(), headers={"Content-Type": content_type})
        assert got == status
        assert status == 200 or answer["code"] == "unsupported_media_type"


async def test_a_body_that_never_ends_is_given_up() -> None:
    config = ProxyConfig(request=RequestLimits(body_timeout_s=0.05))
    async with proxy_room(FakeEdge(), config=config) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_malformed_chunks_are_refused() -> None:
    async with proxy_room(FakeEdge()) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        await writer.drain()
        writer.write(b"zz\r\n")
        assert b" 400 " in await reader.readuntil(b"\r\n")
        writer.close()


async def test_with_keys_only_their_owners_get_in() -> None:
    config = ProxyConfig(keys=("alpha", "beta"))
    async with proxy_room(FakeEdge(), config=config) as room:
        for given in ("Bearer alpha", "bearer beta", "BEARER  beta "):
            assert (await room.post({}, headers={"Authorization": given}))[0] == 200
        for given in ("", "alpha", "Basic alpha", "Bearer ", "Bearer alph", "Bearer alphabeta", "Bearer \u00fc"):
            status, problem, headers = await room.post({}, headers={"Authorization": given})
            assert (status, problem["code"], headers["WWW-Authenticate"]) == (401, "unauthorised", "Bearer")
        async with room.http.get("/v1/models") as answer:
            assert answer.status == 401


async def test_a_client_that_leaves_cancels_its_request_at_the_edge() -> None:
    edge = FakeEdge(silence)
    async with proxy_room(edge) as room:
        _, writer = await asyncio.open_connection("127.0.0.1", room.port)
        body = json.dumps(BODY).encode()
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await edge.wait_for(lambda: len(edge.requests) == 1)
        writer.close()
        await edge.wait_for(lambda: edge.cancelled == 1)
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        assert room.proxy.pool.endpoints[0].in_flight == 0


async def test_the_deadline_ends_a_request_at_both_ends() -> None:
    edge = FakeEdge(silence)
    async with proxy_room(edge) as room:
        status, problem, _ = await room.post({"deadline_ms": 30})
        assert (status, problem["code"]) == (504, "deadline_exceeded")
        await edge.wait_for(lambda: edge.cancelled == 1)


async def test_past_its_permits_the_proxy_sheds() -> None:
    edge = FakeEdge(silence)
    async with proxy_room(edge, config=ProxyConfig(in_flight_max=2)) as room:
        waiting = [room.tasks.spawn(room.post({"deadline_ms": 5000}), name="test") for _ in range(2)]
        await edge.wait_for(lambda: len(edge.requests) == 2)
        status, problem, headers = await room.post({})
        assert (status, problem["code"], headers["Retry-After"]) == (503, "overloaded", "1")
        for request in waiting:
            request.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await edge.wait_for(lambda: edge.cancelled == 2)
        edge.script = echo
        await asyncio.wait_for(room.proxy.service.idle(), 5.0)
        assert (await room.post({}))[0] == 200


async def test_a_draining_proxy_answers_what_comes_on_open_connections_and_says_that_they_end() -> None:
    release = asyncio.Event()

    async def held(stream: Any, message: Any) -> None:
        await release.wait()
        await echo(stream, message)

    edge = FakeEdge(held)
    async with proxy_room(edge) as room:
        first = room.tasks.spawn(room.post({}), name="test")
        await edge.wait_for(lambda: len(edge.requests) == 1)
        room.proxy.lifecycle.move("draining")
        drained = room.tasks.spawn(room.proxy.drain(), name="test")
        second = room.tasks.spawn(room.post({}), name="test")
        await edge.wait_for(lambda: len(edge.requests) == 2)
        assert not drained.done()
        release.set()
        assert (await first)[0] == (await second)[0] == 200
        await asyncio.wait_for(drained, 5.0)
        room.proxy.lifecycle.move("stopped")
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "draining")


async def test_without_an_edge_the_answer_is_503_after_a_moment() -> None:
    config = ProxyConfig(start_wait_s=0.01, attempts=AttemptLimits(edge_wait_ms=20.0))
    async with proxy_room(config=config) as room:
        status, problem, _ = await room.post({})
        assert (status, problem["code"]) == (503, "edge_unavailable")


async def test_a_bug_is_a_500_that_says_nothing_about_it(caplog: pytest.LogCaptureFixture) -> None:
    async with proxy_room(FakeEdge()) as room:
        room.proxy.service.translate = None  # type: ignore[method-assign,assignment]
        status, problem, _ = await room.post({"text": "swordfish"})
        assert (status, problem["code"]) == (500, "internal_error")
        assert "detail" not in problem
        assert "failed" in caplog.text
        assert "swordfish" not in caplog.text


async def test_a_client_that_stops_reading_is_cut_off() -> None:
    config = ProxyConfig(
        answer=AnswerLimits(write_timeout_s=0.1, compress_bytes_min=1 << 30),
        request=RequestLimits(text_chars_max=1 << 23, total_chars_max=1 << 23, body_bytes_max=1 << 23),
    )
    async with proxy_room(FakeEdge(), config=config) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port, limit=1)
        body = json.dumps(BODY | {"text": "x" * 6_000_000}).encode()
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        await asyncio.wait_for(_cut_off(room, reader), 10.0)
        writer.close()


async def _cut_off(room: ProxyRoom, reader: asyncio.StreamReader) -> None:
    """Wait, without reading, until the proxy has given up; what is left of the answer then ends short."""
    while room.proxy.metrics.count is not None:
        counters = room.proxy.metrics.snapshot()["counters"]
        if any("cancelled" in name for name in counters):
            break
        await asyncio.sleep(0.02)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(6_000_000)


async def test_stages_are_counted_by_tier_and_length() -> None:
    async with proxy_room(FakeEdge()) as room:
        await room.post({})
        counted = {(row["stage"], row["tier"], row["bucket"]) for row in room.proxy.metrics.snapshot()["stages"]}
        assert {("e2e", "edge", "1-16"), ("link", "edge", "1-16")} <= counted


async def test_pipelined_and_split_requests_are_answered_in_order() -> None:
    async with proxy_room(FakeEdge()) as room:
        reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
        wire = b""
        for word in ("one", "two", "three"):
            body = json.dumps(BODY | {"text": word}).encode()
            wire += b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        for byte in range(0, len(wire), 50):
            writer.write(wire[byte : byte + 50])
            await writer.drain()
        for word in ("ONE", "TWO", "THREE"):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length))["translations"][0]["text"] == word
        writer.close()


async def test_an_sdk_that_uses_aiohttp_gets_its_answer_decoded() -> None:
    body = BODY | {"text": "good day " * 300}
    async with (
        proxy_room(FakeEdge()) as room,
        aiohttp.ClientSession(room.url) as http,
        http.post("/v1/translate", json=body) as answer,
    ):
        assert (await answer.json())["translations"][0]["text"].startswith("GOOD DAY")
