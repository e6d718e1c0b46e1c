"""Starts the process again with an allocator that keeps large blocks: worth twice the speed of a CPU training step.

glibc's malloc gives every large tensor back to the kernel and maps it anew; tcmalloc keeps it. Where tcmalloc isn't
installed, glibc is told to keep blocks of up to 4 GiB. Both must be set before the process starts, hence the restart.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib64/libtcmalloc_minimal.so.4",
)
DONE = "NEARSAY_ALLOCATOR"
GLIBC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}


def allocator_environment(environ: Mapping[str, str], exists: bool, library: str) -> dict[str, str] | None:
    """The environment to start again with, or None when this process has been or was given an allocator."""
    if DONE in environ or "LD_PRELOAD" in environ or "MALLOC_MMAP_THRESHOLD_" in environ:
        return None
    wanted = {"LD_PRELOAD": library} if exists else GLIBC
    return {**environ, **wanted, DONE: Path(library).name if exists else "glibc"}


def restart_with_allocator() -> None:
    """Replaces this process by itself with the allocator set; returns when there is nothing to do."""
    library = next((path for path in LIBRARIES if Path(path).exists()), LIBRARIES[0])
    environment = allocator_environment(os.environ, Path(library).exists(), library)
    if environment is not None and sys.platform == "linux":
        os.execve(sys.executable, sys.orig_argv, environment)
