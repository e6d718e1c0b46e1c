"""A parent and its processes, for real: what connects is answered, whatever becomes of a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from nearsay.runtime.service import EXIT_CONFIG
from nearsay.runtime.tasks import Tasks

WITHIN_S = 30.0
SECRET = {"Authorization": "Bearer a4"}
ROOT = Path(__file__).resolve().parent.parent.parent


class Family:
    """A parent process of two, as its user sees it."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.process = process
        self.errors: list[str] = []
        self.line: dict[str, Any] = {}

    @property
    def door(self) -> str:
        return f"http://127.0.0.1:{self.line['port']}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.line['admin_port']}"

    async def get(self, url: str) -> tuple[int, str]:
        """On a connection of its own."""
        async with aiohttp.ClientSession(headers=SECRET) as http, http.get(url) as answer:
            return answer.status, await answer.text()

    async def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.get(self.admin + "/stats"))[1])
        return found

    async def pids(self) -> set[int]:
        """Processes that serve."""
        return {worker["pid"] for worker in (await self.stats())["workers"] if worker["state"] == "ready"}

    async def reload(self, **headers: str) -> tuple[int, dict[str, Any]]:
        url = self.admin + "/reload"
        async with aiohttp.ClientSession(headers=SECRET) as http, http.post(url, headers=headers) as answer:
            return answer.status, await answer.json()

    async def until(self, condition: Any) -> None:
        """Ask again and again: the asking takes the time."""
        async with asyncio.timeout(WITHIN_S):
            while not await condition():
                pass

    async def end(self) -> int:
        async with asyncio.timeout(WITHIN_S):
            return await self.process.wait()


@asynccontextmanager
async def family(folder: Path) -> AsyncIterator[Family]:
    (folder / "demo.toml").write_text('drain_idle_s = 0.2\nadmin_secret = "a4"\n')
    command = (sys.executable, "-m", "tests.kit.demo_service", str(folder), "PARENT")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
    made, tasks = Family(folder, process), Tasks()

    async def read_errors() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            made.errors.append(line.decode())

    reading = tasks.spawn(read_errors(), name="stderr")
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), WITHIN_S)
    made.line = json.loads(line or "{}")
    try:
        yield made
    finally:
        if process.returncode is None:
            (folder / "go").touch()
            process.terminate()
        await asyncio.wait_for(process.wait(), WITHIN_S)
        await asyncio.wait_for(reading, WITHIN_S)
        await tasks.close()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_both_serve_and_what_they_measured_is_added_up(tmp_path: Path) -> None:
    async with family(tmp_path) as ours:
        served: set[str] = set()

        async def both_have() -> bool:
            served.add((await ours.get(ours.door + "/pid"))[1])
            return len(served) == 2

        await ours.until(both_have)
        assert served == {str(pid) for pid in await ours.pids()}
        answered = 100
        for _ in range(answered):
            await ours.get(ours.door + "/pid")
        stats = await ours.stats()
        assert stats["counters"]["answered_here"] >= answered and stats["stages"][0]["count"] >= answered
        assert stats["state"] == "ready" and stats["counters"]["parent_runs"] == 1
        metrics = (await ours.get(ours.admin + "/metrics"))[1]
        assert "nearsay_demo_answered_here_total" in metrics and "event_loop_lag" in metrics
        assert (await ours.get(ours.admin + "/readyz"))[0] == 200
        assert json.loads((await ours.get(ours.admin + "/mine"))[1]) in await ours.pids(), "a page of the service's own"
        assert (await ours.get(ours.admin + "/nowhere"))[0] == 404
        async with aiohttp.ClientSession() as stranger:
            for path in ("/stats", "/metrics", "/config", "/mine", "/nowhere"):
                assert (await stranger.get(ours.admin + path)).status == 401
            assert (await stranger.post(ours.admin + "/reload")).status == 401
        await ours.reload()
        assert (await ours.stats())["counters"] == stats["counters"], "what ended is not forgotten"
        ours.process.terminate()
        assert await ours.end() == 0


async def test_killed_processes_are_replaced_and_nobody_is_refused(tmp_path: Path) -> None:
    async with family(tmp_path) as ours:
        killed = min(await ours.pids())
        os.kill(killed, signal.SIGKILL)

        async def two_again() -> bool:
            status, pid = await ours.get(ours.door + "/pid")
            assert status == 200 and pid != str(killed)
            return len(await ours.pids() - {killed}) == 2

        await ours.until(two_again)
        assert (await ours.stats())["restarts"] == 1
        before = await ours.pids()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        status, answered_by = await ours.get(ours.door + "/pid")
        assert status == 200 and int(answered_by) not in before, "who connects while none is there waits"
    assert any("row" in line and "left" in line for line in ours.errors)
    assert any("ended with status -9" in line for line in ours.errors)


async def test_a_reload_replaces_all_and_the_old_finish_what_they_have(tmp_path: Path) -> None:
    async with family(tmp_path) as ours:
        before, tasks = await ours.pids(), Tasks()
        slow = tasks.spawn(ours.get(ours.door + "/slow"), name="slow request")

        async def is_in_flight() -> bool:
            return any(value == 1 for name, value in (await ours.stats())["gauges"].items() if "in_flight" in name)

        await ours.until(is_in_flight)
        assert (await ours.reload())[0] == 200
        between = await ours.pids()
        assert len(between) == 2 and not between & before and not slow.done()
        (tmp_path / "go").touch()
        status, pid = await slow
        assert status == 200 and int(pid) in before

        async def all_new() -> bool:
            assert (await ours.get(ours.door + "/pid"))[0] == 200
            after = await ours.pids()
            return len(after) == len((await ours.stats())["workers"]) == 2 and not after & (before | between)

        ours.process.send_signal(signal.SIGHUP)
        await ours.until(all_new)
        assert not any(map(alive, before | between))
        await tasks.close()


async def test_a_reload_that_fails_leaves_the_old_ones(tmp_path: Path) -> None:
    async with family(tmp_path) as ours:
        before = await ours.pids()
        assert (await ours.reload(Origin="http://evil.example"))[0] == 403
        (tmp_path / "broken").touch()
        status, answer = await ours.reload()
        assert status == 409 and "broken" in answer["error"]
        (tmp_path / "demo.toml").write_text("prot = 1")
        status, answer = await ours.reload()
        assert status == 409 and "did you mean 'port'" in answer["error"]
        assert await ours.pids() == before and (await ours.get(ours.door + "/pid"))[0] == 200


async def test_the_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    async with family(tmp_path) as ours:
        pids = await ours.pids()
        ours.process.kill()
        await ours.end()
        async with asyncio.timeout(WITHIN_S):
            while any(map(alive, pids)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_first_start_that_fails_ends_all(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    async with family(tmp_path) as ours:
        assert await ours.end() == EXIT_CONFIG
        assert ours.line == {}
    assert any("broken" in line for line in ours.errors)
