"""`python -m tests.cli.fake_stack --config FILE`: stands for the service that the config is named after.

The proxy translates (into capitals); `FAKE_DIES` names a service that dies at its start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tomllib
from pathlib import Path

from tests.client.fake_proxy import FakeProxy


async def main(name: str, fields: dict[str, int]) -> int:
    if name == os.environ.get("FAKE_DIES"):
        print("no model could be read", file=sys.stderr)
        return 1
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with FakeProxy().serving(fields["port"]):
        ready = {"service": name, "port": fields["port"], "admin_port": fields["admin_port"], "state": "ready"}
        print(json.dumps(ready), flush=True)
        await stop.wait()
    print("drained", file=sys.stderr)
    return 0


if __name__ == "__main__":
    file = Path(sys.argv[2])
    sys.exit(asyncio.run(main(file.stem, tomllib.loads(file.read_text()))))
