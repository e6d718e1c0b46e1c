"""One upstream for all proxies of case `proxy`, as a process: an edge worker that echoes.

It speaks the link (for Nearsay), Nearsay's HTTP (for nginx, HAProxy and for no proxy at all) and the OpenAI form (for
LiteLLM). `python -m bench.echo_edge` prints a ready line; its `admin_port` is the port of the HTTP forms.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time

import orjson
from aiohttp import web

from bench.lean_http import EchoServer
from nearsay.runtime.link import LinkLimits, LinkServer, Stream
from nearsay.runtime.service import loop_factory
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Hello, ModelInfo, Translate, Translated, TranslatedText

MODEL = ModelInfo("echo", "1", "en", "de", "edge", "s", "t")


async def _on_stream(stream: Stream) -> None:
    message = stream.message
    assert isinstance(message, Translate)
    texts = tuple(TranslatedText(text, message.source, "edge", MODEL.name) for text in message.texts)
    await stream.finish(Translated(texts, {}, 0.0))


def answer(head: bytes, body: bytes) -> bytes:
    """The HTTP forms, told apart by the path."""
    if not body:  # LiteLLM asks for the models, too
        return b'{"object": "list", "data": [{"id": "echo", "object": "model"}]}'
    request = orjson.loads(body)
    if b"/chat/completions" in head.split(b"\r\n", 1)[0]:
        message = {"role": "assistant", "content": request["messages"][-1]["content"]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "echo", "object": "chat.completion", "created": 0, "model": "echo"}
        return orjson.dumps({**whole, "choices": [choice], "usage": usage})
    one = {"text": request["text"], "source": "en", "tier": "edge", "model": MODEL.name}
    return orjson.dumps({"translations": [one], "stages_ms": {}, "request_id": ""})


async def serve() -> None:
    """Serve until SIGTERM."""
    tasks = Tasks()
    hello = Hello("edge", instance="echo", models=(MODEL,))
    server = LinkServer(hello=lambda: hello, handler=_on_stream, tasks=tasks, limits=LinkLimits(), clock=time.monotonic)
    app = web.Application()
    app.add_routes([web.get("/link", server.handle)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    loop = asyncio.get_running_loop()
    plain = await loop.create_server(lambda: EchoServer(answer), "127.0.0.1", 0, backlog=1024)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    ports = {"port": runner.addresses[0][1], "admin_port": plain.sockets[0].getsockname()[1]}
    print(json.dumps({"service": "echo", "state": "ready", **ports}), flush=True)
    await stop.wait()
    plain.close()
    await runner.cleanup()
    await tasks.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as main:
        main.run(serve())
