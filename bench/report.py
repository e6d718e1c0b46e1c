"""Results of benchmarks: their one shape on disk, how one is written, and what makes one acceptable.

Every case writes `bench/results/<case>.json`. Each measure carries its floor (must hold) and target (what we want), so
that `bench.check` needs no table of numbers of its own. Figures without a floor are context and go into `notes`.
Not here: how anything is measured (cases), who runs them (__main__).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("nearsay", "aiohttp", "uvloop", "msgpack", "msgspec", "orjson", "ctranslate2", "fxtranslate", "torch")

Better = Literal["lower", "higher"]
Note = str | int | float | bool | None


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure. `floor` is the worst value that passes, `target` the one we want; both in `unit`."""

    name: str
    value: float
    unit: str
    floor: float
    target: float
    better: Better

    @property
    def passes(self) -> bool:
        """Whether the value is on the right side of its floor; NaN never is."""
        return self._reaches(self.floor)

    @property
    def on_target(self) -> bool:
        """Whether the value is at its target or better."""
        return self._reaches(self.target)

    def _reaches(self, bound: float) -> bool:
        return self.value <= bound if self.better == "lower" else self.value >= bound


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one run of one case measured, where, and with what."""

    case: str
    date: str  # ISO 8601, UTC
    machine: dict[str, str | int]
    versions: dict[str, str]
    measures: tuple[Measure, ...]
    notes: dict[str, Note]


def write_result(
    case: str, measures: Sequence[Measure], notes: Mapping[str, Note] | None = None, folder: Path = RESULTS
) -> Path:
    """Write `<folder>/<case>.json`, with this machine and these versions. Raises ValueError without measures."""
    if not measures:
        raise ValueError(f"case {case} measured nothing")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    result = Result(case, date, machine(), versions(), tuple(measures), dict(notes or {}))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return path


def read_result(path: Path) -> Result:
    """The result in a file. Raises msgspec.ValidationError for another shape, a missing floor or target included."""
    return msgspec.json.decode(path.read_bytes(), type=Result)


def machine() -> dict[str, str | int]:
    """What the figures depend on, and nothing that names the machine."""
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Python's version and those of the installed packages among the named ones."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
