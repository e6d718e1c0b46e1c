from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner

from nearsay.cli.main import app
from nearsay.cli.stats import ServiceStats, StageStats, _view, regions_table, sessions_table, stats_table

STATS = {
    "service": "edge",
    "state": "ready",
    "stages": [
        {"stage": stage, "tier": tier, "bucket": bucket, "count": 3, "p50_ms": 1.5, "p95_ms": 2.0, "p99_ms": 3.0}
        for stage, tier, bucket in (
            ("edge_run", "edge", "17-64"),
            ("decode", "origin", "1-16"),
            ("e2e", "edge", "17-64"),
            ("parse", "edge", "1-16"),
        )
    ],
    "counters": {"nearsay_edge_requests_total": 3.0},
    "gauges": {},
    "field_of_the_future": 1,
}


@pytest.fixture(scope="module")
def admin() -> Iterator[str]:
    urls: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        async def stats(request: web.Request) -> web.Response:
            refused = request.headers.get("Authorization", "Bearer a4") != "Bearer a4"
            return web.Response(status=401) if refused else web.json_response(STATS)

        application = web.Application()
        application.add_routes([web.get("/stats", stats)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop = asyncio.Event()
        urls.put((f"http://127.0.0.1:{runner.addresses[0][1]}", asyncio.get_running_loop(), stop))
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, loop, stop = urls.get(timeout=10)
    yield url
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


def test_table_and_a_service_that_is_not_there(admin: str) -> None:
    result = CliRunner().invoke(app, ["stats", "--admin", admin, "--admin", "http://127.0.0.1:1"])
    assert result.exit_code == 0
    assert "edge: ready" in result.stdout
    assert "127.0.0.1:1" in result.stdout
    assert "1.50" in result.stdout


def test_regions_are_shown_where_there_are_any() -> None:
    assert regions_table(ServiceStats("edge", "ready", counters={"requests{code=ok,door=http}": 3.0})) == []
    counters = {
        "routed{region=eu,why=fastest}": 7.0,
        "routed{region=eu,why=probe}": 1.0,
        "routed{region=us,why=spill_health}": 2.0,
        "routed{region=us,why=spill_load}": 3.0,
        "region_turns{region=eu,turn=left}": 1.0,
        "region_turns{region=eu,turn=returned}": 1.0,
    }
    gauges = {"region_rtt_ms{region=eu}": 4.25, "region_edges_up{region=eu}": 2.0, "region_edges_up{region=us}": 1.0}
    of_processes = {name[:-1] + f",worker={worker}}}": value for name, value in gauges.items() for worker in (1, 12)}
    for told in (gauges, of_processes):
        [table] = regions_table(ServiceStats("proxy", "ready", counters=counters, gauges=told))
        assert list(zip(*(column.cells for column in table.columns), strict=True)) == [
            ("eu", "2", "4.2", "8", "0", "1", "1", "1"),
            ("us", "1", "", "5", "5", "0", "0", "0"),
        ]


def test_sessions_have_a_table_of_their_own_once_there_are_any() -> None:
    gauges = {
        "sessions": 1.0,
        "session_bytes": 2048.0,
        "session_segments": 8.0,
        "session_segments_reused": 2.0,
        "session_passes": 15.0,
        "session_plain_passes": 60.0,
        "session_draft_tokens": 40.0,
        "session_draft_tokens_accepted": 30.0,
        "sources_encoded": 9.0,
        "sources_reused": 1.0,
    }
    origin = ServiceStats("origin", "ready", gauges=gauges)
    [table] = sessions_table(origin)
    rows = {row[0]: row[1:] for row in zip(*(column.cells for column in table.columns), strict=True)}
    assert rows["decoder passes saved"] == ("45", "75 %") and rows["drafted tokens that stood"] == ("30", "75 %")
    assert rows["segments answered without decoding"] == ("2", "25 %")
    assert rows["sources whose encoding was kept"] == ("1", "10 %") and rows["sessions now"] == ("1", "2 KiB")
    assert rows["segments that lean on their last answer"] == ("0", "0 %")
    shown = _view({"a": origin, "b": ServiceStats("edge", "ready"), "c": "no answer"}).renderables
    assert [type(part).__name__ for part in shown] == ["Table", "Table", "Table", "Text"]
    assert sessions_table(ServiceStats("origin", "ready")) == []


def test_json(admin: str) -> None:
    result = CliRunner().invoke(app, ["stats", "--json", "--admin", f"{admin}/"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)[f"{admin}/"]["counters"] == STATS["counters"]


def test_the_secret_is_shown(admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(app, ["stats", "--admin", admin, "--admin-secret", "a4"]).exit_code == 0
    monkeypatch.setenv("NEARSAY_ADMIN_SECRET", "wrong")
    assert "HTTP 401" in CliRunner().invoke(app, ["stats", "--admin", admin]).stdout


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense"])
def test_nobody_answers(url: str) -> None:
    result = CliRunner().invoke(app, ["stats", "--admin", url])
    assert result.exit_code == 1
    assert "no service answered" in result.stderr


def test_rows_stand_in_the_order_of_a_request() -> None:
    def row(stage: str, tier: str, bucket: str) -> StageStats:
        return StageStats(stage, tier, bucket, 1, 1.0, 1.0, 1.0)

    rows = (
        row("decode", "origin", "1-16"),
        row("edge_run", "edge", "17-64"),
        row("e2e", "edge", "17-64"),
        row("parse", "edge", "17-64"),
        row("parse", "edge", "1-16"),
    )
    table = stats_table(ServiceStats("edge", "ready", rows))
    cells = zip(*(column.cells for column in table.columns[:3]), strict=True)
    assert list(cells) == [
        ("parse", "edge", "1-16"),
        ("e2e", "edge", "17-64"),
        ("parse", "edge", "17-64"),
        ("edge_run", "edge", "17-64"),
        ("decode", "origin", "1-16"),
    ]
