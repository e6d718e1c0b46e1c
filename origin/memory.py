"""How much memory this machine has for us: that of the machine, or of the control group that we live in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

HOST_SHARE = (
    0.5  # that models may take, if the operator says nothing; the rest is for the edge, the proxy, the page cache
)
ROOT = Path("/")


def host_bytes(root: Path = ROOT) -> int:
    """The smallest limit that holds here. Raises OSError where there is no /proc/meminfo."""
    return min([_machine(root), *_groups(root)])


def _machine(root: Path) -> int:
    line = next(line for line in (root / "proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) << 10


def _groups(root: Path) -> Iterator[int]:
    """Limits of our control group and of those that it is in, version 2 and 1. Inside a container the group's own path
    may not be visible: its limit then stands at the root."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / "sys/fs/cgroup" / controllers
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder == base or base in folder.parents:
                yield from (int(limit) for limit in _lines(folder / name) if limit.isdecimal())


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
