"""A service in miniature, for tests of what starts and stops services: `python fake_service.py NAME [BEHAVIOUR]`.

Behaviours: "ready" drains on SIGTERM; "dies" ends before it is ready; "crashes" ends soon after; "stubborn" ignores
SIGTERM; "mute" never says that it is ready.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading


def main(name: str, behaviour: str) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else lambda *_: stop.set())
    print(f"{name} starts, secret={os.environ.get('FAKE_SECRET', 'hidden')}", file=sys.stderr, flush=True)
    if behaviour == "dies":
        print(f"{name}: no such model", file=sys.stderr)
        return 3
    print("not json\n[1]", flush=True)
    if behaviour != "mute":
        print(json.dumps({"service": name, "port": 1234, "admin_port": 1235, "state": "ready"}), flush=True)
    if behaviour == "crashes":
        print("x" * 3_000_000, file=sys.stderr)
        return 4
    stop.wait(30)
    print(f"{name} drained", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "ready"))
