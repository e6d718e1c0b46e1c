from __future__ import annotations

from nearsay.distill.malloc import DONE, allocator_environment

LIBRARY = "/lib/libtcmalloc_minimal.so.4"


def test_tcmalloc_is_preloaded_where_it_is_installed() -> None:
    made = allocator_environment({"A": "1"}, True, LIBRARY)
    assert made == {"A": "1", "LD_PRELOAD": LIBRARY, DONE: "libtcmalloc_minimal.so.4"}


def test_glibc_keeps_its_blocks_elsewhere() -> None:
    made = allocator_environment({}, False, LIBRARY)
    assert made is not None and int(made["MALLOC_MMAP_THRESHOLD_"]) >= 1 << 30


def test_a_process_restarts_once_and_respects_what_is_set() -> None:
    made = allocator_environment({}, True, LIBRARY)
    assert made is not None
    assert allocator_environment(made, True, LIBRARY) is None
    assert allocator_environment({"LD_PRELOAD": "other.so"}, True, LIBRARY) is None
    assert allocator_environment({"MALLOC_MMAP_THRESHOLD_": "1"}, False, LIBRARY) is None
