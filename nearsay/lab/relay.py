"""A distance on one machine: a TCP relay in which every byte, and every end, takes a fixed time each way.

Not here: bandwidth, loss, jitter. What is under way in one direction is bounded; past it the sender has to wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from nearsay.runtime.tasks import Tasks

UNDER_WAY_BYTES_MAX = 4 << 20
CHUNK_BYTES = 64 << 10


class Relay:
    """Listens on loopback and passes connections on to `target`, `delay_s` late each way."""

    def __init__(self, target: tuple[str, int], delay_s: float, tasks: Tasks) -> None:
        assert delay_s >= 0
        self.target = target
        self.delay_s = delay_s  # may be changed while it runs: what is under way keeps its order
        self._tasks = tasks
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Take no more connections; those that are open end with `tasks`."""
        if self._server is not None:
            self._server.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.spawn(self._connect(reader, writer), name="relay")

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its handshake to the end of both directions."""
        far: asyncio.StreamWriter | None = None
        try:
            await asyncio.sleep(2 * self.delay_s)  # the handshake's round trip
            far_reader, far = await asyncio.open_connection(*self.target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, far))
                both.create_task(self._carry(far_reader, writer))
        except* OSError:
            pass  # nobody there, or gone: the other side is told by the end of its connection
        finally:
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction. A broken connection ends the other direction, too, as a reset does."""
        under_way: deque[tuple[float, bytes]] = deque()
        held = 0
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def deliver() -> None:
            nonlocal held
            while True:
                while not under_way:
                    changed.clear()
                    await changed.wait()
                due, data = under_way[0]
                if (wait_s := due - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                under_way.popleft()
                held -= len(data)
                changed.set()
                if not data:
                    with suppress(OSError):
                        writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as both:
            both.create_task(deliver())
            while True:
                data = await reader.read(CHUNK_BYTES)
                under_way.append((loop.time() + self.delay_s, data))
                held += len(data)
                changed.set()
                if not data:
                    return
                while held > UNDER_WAY_BYTES_MAX:
                    changed.clear()
                    await changed.wait()
