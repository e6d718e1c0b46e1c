from __future__ import annotations

from pathlib import Path

import pytest

from origin.memory import host_bytes

GIB = 1 << 30


MEMORY, LIMIT = "memory.max", "memory.limit_in_bytes"


def machine(root: Path, groups: str, limits: dict[str, str]) -> Path:
    """A machine of 16 GiB. `limits`: files below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemFree:         1000 kB\n")
    if groups:
        (root / "proc/self/cgroup").write_text(groups)
    for path, limit in limits.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "gib"),
    [
        ("", {}, 16),
        ("0::/\n", {MEMORY: f"{2 * GIB}"}, 2),
        ("0::/pod/box\n", {MEMORY: "max", f"pod/{MEMORY}": f"{3 * GIB}", f"pod/box/{MEMORY}": "max"}, 3),
        ("0::/pod/box\n", {f"pod/{MEMORY}": f"{3 * GIB}", f"pod/box/{MEMORY}": f"{GIB}"}, 1),
        ("0::/unseen/inside/a/container\n", {MEMORY: f"{4 * GIB}"}, 4),
        ("0::/\n", {MEMORY: "max"}, 16),
        ("0::/\n", {MEMORY: f"{64 * GIB}"}, 16),
        ("5:memory:/box\n3:cpu:/box\n", {f"memory/box/{LIMIT}": f"{5 * GIB}"}, 5),
        ("5:memory:/box\n", {f"memory/{LIMIT}": "9223372036854771712"}, 16),
    ],
)
def test_the_smallest_limit_holds(groups: str, limits: dict[str, str], gib: int, tmp_path: Path) -> None:
    assert host_bytes(machine(tmp_path, groups, limits)) == gib * GIB


def test_this_machine() -> None:
    assert host_bytes() > 64 << 20
