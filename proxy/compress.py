"""Content codings, both ways: which one an answer gets, and request bodies undone within a bound.

Compression pays for itself above a threshold only, and takes the event loop's time: large answers are compressed in a
thread (all three libraries let go of the interpreter lock). Decompression stops at the first byte past its bound.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Mapping

import brotli
import zstandard

from nearsay.wire.errors import InvalidRequest
from proxy.core.limits import AnswerLimits

# Best first, at equal q: on 1-64 KB of JSON br 4 is the smallest of the three and zstd 3 the fastest.
CODINGS = ("br", "zstd", "gzip")
ACCEPT_ENCODING = ", ".join(CODINGS)
_CHUNK_BYTES = 64 * 1024
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # what RFC 9659 lets a client ask for
# A zstd block of 4 bytes can stand for 128 KiB, and this decoder has no bound on its output, only what it is fed.
_ZSTD_SLICE_BYTES = 64  # at most 2 MiB at a time
_PARTS_MAX = 64  # gzip members or zstd frames in one body: empty ones cost time and yield nothing to bound it by
_GZIP_WBITS = 16 + zlib.MAX_WBITS


def negotiate(accept_encoding: str) -> str | None:
    """The coding for an answer by `Accept-Encoding` (RFC 9110, 12.5.3), or None for none."""
    if not accept_encoding:
        return None
    weights = _weights(accept_encoding)
    fallback = weights.get("*", 0.0)
    best = max(CODINGS, key=lambda coding: weights.get(coding, fallback))
    weight = weights.get(best, fallback)
    # Identity is welcome unless it is named with a higher weight.
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


def _weights(header: str) -> Mapping[str, float]:
    weights: dict[str, float] = {}
    for entry in header.split(","):
        coding, *parameters = entry.split(";")
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                weight = _weight(value.strip())
        name = coding.strip().lower()
        weights["gzip" if name == "x-gzip" else name] = weight
    return weights


def _weight(value: str) -> float:
    """A q-value; one that can't be read asks for nothing."""
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0.0 <= weight <= 1.0 else 0.0


async def compress(body: bytes, coding: str, limits: AnswerLimits) -> bytes:
    """`body` in `coding`, off the event loop when it is large."""
    if len(body) <= limits.compress_inline_bytes_max:
        return compress_now(body, coding, limits)
    return await asyncio.to_thread(compress_now, body, coding, limits)


def compress_now(body: bytes, coding: str, limits: AnswerLimits) -> bytes:
    """`body` in `coding`, one of CODINGS."""
    if coding == "br":
        compressed: bytes = brotli.compress(body, quality=limits.brotli_quality)
        return compressed
    if coding == "zstd":
        return zstandard.ZstdCompressor(level=limits.zstd_level).compress(body)
    assert coding == "gzip"
    return gzip.compress(body, limits.gzip_level, mtime=0)


async def decompress(body: bytes, content_encoding: str, bytes_max: int) -> bytes:
    """A request body without its Content-Encoding.

    Raises InvalidRequest: unsupported_media_type, body_too_large (at the first byte past it), invalid_request.
    """
    coding = content_encoding.strip().lower()
    if coding in ("", "identity") or not body:
        return body
    undo = _DECODERS.get("gzip" if coding == "x-gzip" else coding)
    if undo is None:
        detail = f"Content-Encoding: one of {ACCEPT_ENCODING} is needed"
        raise InvalidRequest(detail, code="unsupported_media_type")
    try:
        # In a thread even when small: a few bytes can stand for megabytes.
        return await asyncio.to_thread(undo, body, bytes_max)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError):
        raise InvalidRequest(f"the body is not valid {coding}") from None


def _too_large(bytes_max: int) -> InvalidRequest:
    return InvalidRequest(f"more than {bytes_max} bytes after decompression", code="body_too_large")


def _too_many_parts() -> InvalidRequest:
    return InvalidRequest(f"the compressed body has more than {_PARTS_MAX} parts")


def _undo_gzip(body: bytes, bytes_max: int) -> bytes:
    out = bytearray()
    for _ in range(_PARTS_MAX):  # one turn a member
        member = zlib.decompressobj(_GZIP_WBITS)
        out += member.decompress(body, bytes_max + 1 - len(out))
        if len(out) > bytes_max:
            raise _too_large(bytes_max)
        if not member.eof:
            raise EOFError
        if not (body := member.unused_data):
            return bytes(out)
    raise _too_many_parts()


def _undo_brotli(body: bytes, bytes_max: int) -> bytes:
    decoder = brotli.Decompressor()
    out = bytearray(decoder.process(body, output_buffer_limit=_CHUNK_BYTES))
    while not decoder.is_finished():
        if len(out) > bytes_max:
            raise _too_large(bytes_max)
        if decoder.can_accept_more_data():  # it has all there is and still isn't finished
            raise EOFError
        out += decoder.process(b"", output_buffer_limit=_CHUNK_BYTES)
    if len(out) > bytes_max:
        raise _too_large(bytes_max)
    return bytes(out)


def _undo_zstd(body: bytes, bytes_max: int) -> bytes:
    out = bytearray()
    for _ in range(_PARTS_MAX):  # one turn a frame
        frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj()
        for start in range(0, len(body), _ZSTD_SLICE_BYTES):
            end = start + _ZSTD_SLICE_BYTES
            out += frame.decompress(body[start:end])
            if len(out) > bytes_max:
                raise _too_large(bytes_max)
            if frame.eof:
                break
        if not frame.eof:
            raise EOFError
        if not (body := frame.unused_data + body[end:]):
            return bytes(out)
    raise _too_many_parts()


_DECODERS = {"br": _undo_brotli, "gzip": _undo_gzip, "zstd": _undo_zstd}
