"""Real processes on port zero: what `nearsay up` starts, driven by tests."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
READY_S = 60.0
EXIT_S = 30.0


@dataclass
class Service:
    """One started process. `ready` is its ready line."""

    name: str
    process: subprocess.Popen[str]
    ready: dict[str, Any]
    stderr: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.ready["port"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def link_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/link"

    def admin(self, path: str) -> Any:
        """GET from the admin port: JSON where it is JSON, else text."""
        url = f"http://127.0.0.1:{self.ready['admin_port']}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = answer.read().decode()
            return json.loads(body) if "json" in answer.headers.get("content-type", "") else body

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self.process.kill()
        self.process.wait(EXIT_S)

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(EXIT_S)


def write_toml(path: Path, values: Mapping[str, object]) -> Path:
    """A flat config file; JSON's strings, numbers, booleans and lists are TOML's too."""
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return path


def start(module: str, config: Path, env: Mapping[str, str] | None = None) -> Service:
    """Start `python -m module --config config` and wait for its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--config", str(config)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    service = Service(module, process, {})
    lines: queue.Queue[str] = queue.Queue(maxsize=1000)

    def read_out() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def read_err() -> None:
        assert process.stderr is not None
        service.stderr.extend(process.stderr)

    for reader in (read_out, read_err):
        threading.Thread(target=reader, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=READY_S)
        except queue.Empty:
            process.kill()
            raise AssertionError(
                f"{module} was not ready after {READY_S:g} s: {''.join(service.stderr)[-2000:]}"
            ) from None
        if not line:
            process.wait(EXIT_S)
            raise AssertionError(f"{module} ended with {process.returncode}: {''.join(service.stderr)[-2000:]}")
        if line.startswith("{"):
            service.ready = json.loads(line)
            return service


@dataclass
class Stack:
    """Proxy, edge workers and origin. Config of a restarted service is the one it was started with."""

    folder: Path
    services: dict[str, Service] = field(default_factory=dict)
    configs: dict[str, tuple[str, Path]] = field(default_factory=dict)

    def add(self, name: str, module: str, config: Mapping[str, object]) -> Service:
        path = write_toml(self.folder / f"{name}.toml", {"port": 0, "admin_port": 0, **config})
        self.configs[name] = (module, path)
        self.services[name] = start(module, path)
        return self.services[name]

    def __getitem__(self, name: str) -> Service:
        return self.services[name]

    def close(self) -> None:
        for service in self.services.values():
            if service.process.poll() is None:
                service.process.terminate()
        for service in self.services.values():
            try:
                service.process.wait(EXIT_S)
            except subprocess.TimeoutExpired:
                service.kill()


def post(url: str, body: Mapping[str, object], *, timeout: float = 60.0) -> tuple[int, dict[str, Any]]:
    """POST JSON to /v1/translate: status and decoded body, also for errors."""
    request = urllib.request.Request(
        f"{url}/v1/translate", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@contextmanager
def full_stack(folder: Path, **edge: object) -> Iterator[Stack]:
    """Origin, one edge worker and proxy with the models of the checkout and of the `pt` extra."""
    stack = Stack(folder)
    try:
        origin = stack.add("origin", "origin", {})
        worker = stack.add("edge", "edge_worker", {"origins": [origin.link_url], **edge})
        stack.add("proxy", "proxy", {"edges": [worker.link_url]})
        yield stack
    finally:
        stack.close()
