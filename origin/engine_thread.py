"""The thread that an engine loop lives on, seen from the event loop.

A crash of the thread (not of an engine step, which only fails its sequences) means that nobody will decode any more:
`on_exit` is called with it, on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from origin.core.model import ServedModel
from origin.engine_loop import EngineLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_log = logging.getLogger(__name__)


class EngineThread:
    """Start it once. A daemon: a model that takes minutes to load can't keep the process from leaving."""

    def __init__(self, loop: EngineLoop, on_exit: Callable[[], None]) -> None:
        self._engine_loop = loop
        self._on_exit = on_exit
        self._exited: asyncio.Future[None] | None = None

    async def start(self) -> tuple[ServedModel, ...]:
        """Load and warm up; returns the models once sequences are accepted. Raises what loading raised."""
        here = asyncio.get_running_loop()
        loaded: asyncio.Future[tuple[ServedModel, ...]] = here.create_future()
        self._exited = here.create_future()

        def main() -> None:
            try:
                models = self._engine_loop.load()
            except Exception as error:
                _post(here, _fail, loaded, error)
            else:
                _post(here, _succeed, loaded, models)
                self._run()
            finally:
                _post(here, self._exit)

        threading.Thread(target=main, name="origin engine", daemon=True).start()
        return await loaded

    async def stop(self, timeout_s: float) -> None:
        """End the loop after its current step, and wait for the thread, but not for ever."""
        self._engine_loop.stop()
        if self._exited is not None:
            await asyncio.wait((self._exited,), timeout=timeout_s)

    def _run(self) -> None:
        try:
            self._engine_loop.run()
        except Exception:
            _log.critical("the engine thread crashed", exc_info=True)

    def _exit(self) -> None:
        assert self._exited is not None
        self._exited.set_result(None)
        self._on_exit()


async def on_thread(work: Callable[[], T], name: str) -> T:
    """What `work` returns or raises, done on a thread of its own. A daemon, as the engine's: whoever leaves meanwhile
    doesn't wait for it, and neither does the process."""
    here = asyncio.get_running_loop()
    done: asyncio.Future[T] = here.create_future()

    def main() -> None:
        try:
            result = work()
        except Exception as error:
            _post(here, _fail, done, error)
        else:
            _post(here, _succeed, done, result)

    threading.Thread(target=main, name=name, daemon=True).start()
    return await done


def _succeed(loaded: asyncio.Future[T], value: T) -> None:
    if not loaded.done():
        loaded.set_result(value)


def _fail(loaded: asyncio.Future[T], error: Exception) -> None:
    if not loaded.done():
        loaded.set_exception(error)


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
    """Run on the event loop; nothing when that has ended already, because then nobody listens."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        _log.debug("the event loop ended before the engine thread")
