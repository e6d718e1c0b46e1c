"""A proxy that does nothing, as a process: answers over the link and over HTTP with what came in.

What a client needs against it is the client's own cost. `python -m bench.echo` prints a ready line as a service does.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time

import msgspec
import orjson
from aiohttp import web

from nearsay.runtime.link import LinkLimits, LinkServer, Stream
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Hello, Translate, Translated, TranslatedText


def _echoed(text: str, source: str) -> TranslatedText:
    return TranslatedText(text, source, "edge", "echo@1")


async def _on_stream(stream: Stream) -> None:
    message = stream.message
    assert isinstance(message, Translate)
    await stream.finish(Translated(tuple(_echoed(text, message.source) for text in message.texts), {}, 0.0))


async def _on_post(request: web.Request) -> web.Response:
    body = orjson.loads(await request.read())
    one = _echoed(body["text"], body["source"])
    translation = {field: getattr(one, field) for field in one.__struct_fields__}
    answer = {"translations": [translation], "stages_ms": {}, "request_id": ""}
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


async def serve() -> None:
    """Serve until SIGTERM."""
    tasks = Tasks()
    server = LinkServer(
        hello=lambda: Hello(role="proxy"), handler=_on_stream, tasks=tasks, limits=LinkLimits(), clock=time.monotonic
    )
    app = web.Application()
    app.add_routes([web.get("/link", server.handle), web.post("/v1/translate", _on_post)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    port = runner.addresses[0][1]
    print(json.dumps({"service": "echo", "port": port, "admin_port": 0, "state": "ready"}), flush=True)
    await stop.wait()
    await runner.cleanup()
    await tasks.close()


if __name__ == "__main__":
    asyncio.run(serve())
