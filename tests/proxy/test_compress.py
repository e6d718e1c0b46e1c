from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.errors import InvalidRequest
from proxy.compress import CODINGS, compress, compress_now, decompress, negotiate
from proxy.core.limits import AnswerLimits

LIMITS = AnswerLimits()
BODY = b'{"text": "Good morning, how are you?"}' * 50


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", None),
        ("identity", None),
        ("br", "br"),
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "br"),
        ("gzip, deflate", "gzip"),
        ("deflate", None),
        ("*", "br"),
        ("*;q=0", None),
        ("br;q=0, *", "zstd"),
        ("br;q=0.5, gzip;q=0.9", "gzip"),
        ("GZIP;Q=1", "gzip"),
        ("gzip ; q=0.2 , br ; q=0.1", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("gzip;q=0", None),
        ("br;q=nan, gzip", "gzip"),
        ("br;q=2, gzip;q=x", None),
        (";;,,=;q", None),
    ],
)
def test_negotiation(header: str, coding: str | None) -> None:
    assert negotiate(header) == coding


@given(st.text())
def test_any_header_can_be_read(header: str) -> None:
    assert negotiate(header) in (None, *CODINGS)


@pytest.mark.parametrize("coding", CODINGS)
async def test_round_trip(coding: str) -> None:
    small = await compress(BODY, coding, LIMITS)
    assert len(small) < len(BODY) / 4
    assert await decompress(small, coding, 10_000) == BODY
    large = BODY * 100  # past the inline bound: compressed in a thread, to the same bytes
    assert await compress(large, coding, LIMITS) == compress_now(large, coding, LIMITS)


@pytest.mark.parametrize("coding", CODINGS)
async def test_the_bound_is_exact(coding: str) -> None:
    packed = compress_now(BODY, coding, LIMITS)
    assert await decompress(packed, coding, len(BODY)) == BODY
    with pytest.raises(InvalidRequest) as refused:
        await decompress(packed, coding, len(BODY) - 1)
    assert refused.value.code == "body_too_large"


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_broken_body_is_refused(coding: str) -> None:
    packed = compress_now(BODY, coding, LIMITS)
    for broken in (packed[:1], packed[:-1], packed[: len(packed) // 2], packed + b"more", b"\x00" * 20, BODY):
        with pytest.raises(InvalidRequest) as refused:
            await decompress(broken, coding, 10_000)
        assert refused.value.code == "invalid_request"
        assert coding in refused.value.detail


async def test_members_and_frames_follow_each_other() -> None:
    assert await decompress(gzip.compress(b"a") + gzip.compress(b"b"), "gzip", 100) == b"ab"
    assert await decompress(zstandard.compress(b"a") + zstandard.compress(b"b"), "zstd", 100) == b"ab"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_empty_members_and_frames_are_counted(coding: str) -> None:
    empty = compress_now(b"", coding, LIMITS)
    assert await decompress(empty * 63 + compress_now(BODY, coding, LIMITS), coding, 10_000) == BODY
    with pytest.raises(InvalidRequest, match="64 parts"):
        await decompress(empty * 100_000, coding, 10_000)


@pytest.mark.parametrize("coding", ["deflate", "gzip, br", "compress", "nonsense"])
async def test_other_codings_are_refused(coding: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await decompress(b"x", coding, 100)
    assert refused.value.code == "unsupported_media_type"


async def test_identity_is_no_coding() -> None:
    assert await decompress(b"x", " Identity ", 100) == b"x"


BOMBS: dict[str, Callable[[], bytes]] = {
    "br": lambda: brotli.compress(bytes(200_000_000), quality=5),
    "zstd": lambda: zstandard.compress(bytes(200_000_000)),
    "gzip": lambda: gzip.compress(bytes(200_000_000), 9),
}
DEFUSE = """
import resource, sys
from proxy.compress import _DECODERS
from nearsay.wire.errors import InvalidRequest
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    _DECODERS[sys.argv[1]](bomb, 4 << 20)
except InvalidRequest as error:
    print(error.code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_is_never_allocated(coding: str) -> None:
    bomb = BOMBS[coding]()
    assert len(bomb) < 300_000
    command = [sys.executable, "-c", DEFUSE, coding]
    out = subprocess.run(command, input=bomb, capture_output=True, timeout=60, check=True)
    code, grown_kib = out.stdout.split()
    assert code == b"body_too_large"
    assert int(grown_kib) < 32 * 1024
