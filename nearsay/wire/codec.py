"""Messages and packets to bytes and back.

Decides: how a message looks on the wire, and that whatever comes off it has the shape it must have.
Must not know: streams, credit, who may send what.
Invariants: decoding raises ProtocolError and nothing else; what it allocates is bounded by the limits given.
msgpack does the bytes, msgspec the types, one type at a time: converting to the whole union costs 4 us a message,
looking the type up by its tag first 0.2 us; a hand-flattened path would save 0.2 us of 1 us and isn't worth its lines.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgpack
import msgspec

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.limits import PACKET_BYTES_MAX, PACKET_FRAMES_MAX, LinkLimits
from nearsay.wire.messages import Finished, Hello, LoadReport, Message, Submit, Tokens, Translate, Translated, Update
from nearsay.wire.protocol import Frame, ProtocolError

STREAM_MESSAGES: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Translate, Update, Translated, Submit, Tokens, Finished)
}
# Types of a frame's items after its kind. Lists are checked by their reader.
_SHAPES: dict[Frame, tuple[type, ...]] = {
    Frame.HELLO: (bytes,),
    Frame.OPEN: (int, int, float, bytes),
    Frame.DATA: (list,),
    Frame.CREDIT: (list,),
    Frame.CANCEL: (int,),
    Frame.REJECT: (int, str, str, float),
    Frame.GO_AWAY: (str,),
    Frame.PING: (int,),
    Frame.PONG: (int,),
    Frame.LOAD: (bytes,),
}
_KINDS = {int(kind): kind for kind in Frame}
_PACKER_BYTES = 64 << 10
_MAP_ITEMS_MAX = 1024
# The unpacker allocates an array's slots before it has read them, so arrays are bounded, not only bytes.
_PACKET_LIMITS = {"max_array_len": 3 * PACKET_FRAMES_MAX, "max_map_len": 0, "max_ext_len": 0}
# Everything msgpack and msgspec raise on bytes or values they can't read (FormatError, StackError, UnicodeDecodeError
# and ValidationError are ValueErrors; a map with an unhashable key is a TypeError).
_UNREADABLE = (ValueError, TypeError, msgpack.UnpackException)
LinkMessage = TypeVar("LinkMessage", Hello, LoadReport)


class Codec:
    """Encoder and decoder of one link; not for sharing between threads."""

    def __init__(self, limits: LinkLimits) -> None:
        self._pack = msgpack.Packer(autoreset=True, buf_size=_PACKER_BYTES).pack
        self._array_items_max = items_max = limits.array_items_max
        self._message_limits = {"max_array_len": items_max, "max_map_len": _MAP_ITEMS_MAX, "max_ext_len": 0}

    def encode(self, message: Message) -> bytes:
        """A message's bytes.

        Raises InvalidRequest: invalid_text for text that is no Unicode (lone surrogates), text_too_long for more items
        in one list than the peer would read.
        """
        raw = msgspec.to_builtins(message, builtin_types=(bytes,))
        try:
            packed: bytes = self._pack(raw)
        except UnicodeEncodeError as error:
            raise InvalidRequest("the text holds lone surrogates", code="invalid_text") from error
        if len(packed) > self._array_items_max and _longest(raw) > self._array_items_max:
            raise InvalidRequest(f"more than {self._array_items_max} items in one list", code="text_too_long")
        return packed

    def decode(self, body: bytes) -> Message:
        """A stream's message. Raises ProtocolError(malformed_message)."""
        try:
            raw = msgpack.unpackb(body, **self._message_limits)
            return msgspec.convert(raw, STREAM_MESSAGES[raw[0]])
        except (*_UNREADABLE, LookupError) as error:
            raise ProtocolError("malformed_message", type(error).__name__) from error

    def decode_as(self, body: bytes, kind: type[LinkMessage]) -> LinkMessage:
        """A link-level message. Raises ProtocolError(malformed_message)."""
        try:
            return msgspec.convert(msgpack.unpackb(body, **self._message_limits), kind)
        except _UNREADABLE as error:
            raise ProtocolError("malformed_message", type(error).__name__) from error

    def pack(self, frames: list[Any]) -> bytes:
        """One packet."""
        packed: bytes = self._pack(frames)
        return packed

    def unpack(self, packet: bytes) -> list[list[Any]]:
        """The frames of a packet, each a known kind with items of the right types.

        Raises ProtocolError: packet_too_big, too_many_frames, malformed_packet.
        """
        if len(packet) > PACKET_BYTES_MAX:
            raise ProtocolError("packet_too_big", f"{len(packet)} bytes")
        try:
            frames = msgpack.unpackb(packet, **_PACKET_LIMITS)
        except _UNREADABLE as error:
            raise ProtocolError("malformed_packet", type(error).__name__) from error
        if type(frames) is not list:
            raise ProtocolError("malformed_packet", "no list of frames")
        count = 0
        for frame in frames:
            count += _check_shape(frame)
        if count > PACKET_FRAMES_MAX:
            raise ProtocolError("too_many_frames", str(count))
        return frames


def _longest(raw: Any) -> int:
    """Length of the longest list in a message's raw form."""
    if not isinstance(raw, list | tuple):
        return 0
    return max(len(raw), max(map(_longest, raw), default=0))


def _check_shape(frame: Any) -> int:
    """Check one frame and put its kind's enum in front; returns how many frames it counts for."""
    if type(frame) is not list or not frame or type(frame[0]) is not int or frame[0] not in _KINDS:
        raise ProtocolError("malformed_packet", "unknown frame")
    kind = _KINDS[frame[0]]
    frame[0] = kind
    if tuple(map(type, frame[1:])) != _SHAPES[kind]:
        raise ProtocolError("malformed_packet", f"{kind.name} has the wrong shape")
    if kind is Frame.DATA:
        return _check_items(frame[1], 3, (int, int, bytes))
    if kind is Frame.CREDIT:
        return _check_items(frame[1], 2, (int, int))
    return 1


def _check_items(items: list[Any], width: int, types: tuple[type, ...]) -> int:
    count, rest = divmod(len(items), width)
    if rest or tuple(map(type, items)) != types * count:
        raise ProtocolError("malformed_packet", "items of the wrong shape")
    return count + 1
