from __future__ import annotations

import contextlib
import tracemalloc
import types
import typing
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire import messages
from nearsay.wire.codec import STREAM_MESSAGES, Codec
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.limits import PACKET_BYTES_MAX, PACKET_FRAMES_MAX, LinkLimits
from nearsay.wire.messages import Finished, Hello, LoadReport, Message, ModelInfo, Submit, Tokens, Translate, pack_ids
from nearsay.wire.protocol import Frame, ProtocolError
from tests.wire.conversation import packet_of

CODEC = Codec(LinkLimits())


BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}


def instances(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, whole messages too."""
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    args = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Literal:
            return st.sampled_from(args)
        case origin if origin is tuple:
            return st.lists(instances(args[0]), max_size=3).map(tuple)
        case origin if origin is dict:
            return st.dictionaries(instances(args[0]), instances(args[1]), max_size=3)
        case types.UnionType | typing.Union:
            return st.one_of(*map(instances, args))
    return st.builds(kind, **{field.name: instances(field.type) for field in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("name", STREAM_MESSAGES)
def test_every_message_comes_back_as_it_was(name: str) -> None:
    @given(instances(STREAM_MESSAGES[name]))
    def round_trip(message: Message) -> None:
        assert CODEC.decode(CODEC.encode(message)) == message

    round_trip()


@given(instances(Hello), instances(LoadReport))
def test_link_messages_come_back(hello: Hello, report: LoadReport) -> None:
    assert CODEC.decode_as(CODEC.encode(hello), Hello) == hello
    assert CODEC.decode_as(CODEC.encode(report), LoadReport) == report


def test_every_message_type_is_known() -> None:
    known = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)}
    assert set(STREAM_MESSAGES.values()) | {Message, Hello, LoadReport} == known


def test_bytes_are_msgpacks_and_msgspecs_alike() -> None:
    message = Submit("r", "m@1", "a", "b", pack_ids([1, 2, 0]))
    assert CODEC.encode(message) == msgspec.msgpack.encode(message)


def test_a_newer_peers_extra_fields_are_skipped() -> None:
    raw = [*msgpack.unpackb(CODEC.encode(Tokens(b"\1\0\0\0"))), "from the future"]
    assert CODEC.decode(msgpack.packb(raw)) == Tokens(b"\1\0\0\0")


def test_an_older_peers_missing_fields_get_their_defaults() -> None:
    assert CODEC.decode(msgpack.packb(["Translate", "r", ["a"], "en", "de"])) == Translate("r", ("a",), "en", "de")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91",
        msgpack.packb("Tokens"),
        msgpack.packb([]),
        msgpack.packb({"a": 1}),
        msgpack.packb(["Nobody", b""]),
        msgpack.packb([["Tokens"], b""]),
        msgpack.packb(["Hello", "edge"]),
        msgpack.packb(["Tokens", "text, not bytes"]),
        msgpack.packb(["Tokens", b""]) + b"\0",
        msgpack.packb(["Tokens", msgpack.ExtType(5, b"x")]),
        msgpack.packb(["Tokens", msgpack.Timestamp(1)]),
        b"\x92\xa6Tokens\xa1\xff",
        b"\x91" * 5000,
        b"\x92\xa6Tokens\x81\x90\x90",
        msgpack.packb(["Translate", "r", ["a"], "en", "de", "no such tier"]),
    ],
)
def test_a_malformed_message_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        CODEC.decode(body)
    assert caught.value.code == "malformed_message"
    with pytest.raises(ProtocolError):
        CODEC.decode_as(body, LoadReport)


@pytest.mark.parametrize(
    "frame",
    [
        [],
        ["OPEN"],
        [99, 1],
        [True, 1],
        7,
        None,
        [Frame.OPEN, 1, 0, 5, b"budget is no float"],
        [Frame.OPEN, 1, 0, 5.0],
        [Frame.OPEN, True, 0, 5.0, b"x"],
        [Frame.DATA, [1, 0]],
        [Frame.DATA, [1, 0, "text"]],
        [Frame.DATA, b"x"],
        [Frame.CREDIT, [1]],
        [Frame.CREDIT, [1, 2.0]],
        [Frame.CANCEL],
        [Frame.CANCEL, 1, 2],
        [Frame.REJECT, 1, "code", "detail", None],
        [Frame.PING, "1"],
        [Frame.GO_AWAY, None],
        [Frame.LOAD, "text"],
    ],
)
def test_a_malformed_frame_is_a_protocol_error(frame: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        CODEC.unpack(packet_of([Frame.PING, 1], frame))
    assert caught.value.code == "malformed_packet"


@pytest.mark.parametrize(
    "packet", [b"", b"\xc0", b"\x01", b"\x80", b"\x81\x01\x02", b"\xdd\xff\xff\xff\xff", b"\x90\x90"]
)
def test_a_packet_is_one_list_of_frames(packet: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        CODEC.unpack(packet)
    assert caught.value.code == "malformed_packet"


def test_limits_of_a_packet() -> None:
    with pytest.raises(ProtocolError, match="packet_too_big"):
        CODEC.unpack(bytes(PACKET_BYTES_MAX + 1))
    full = packet_of(*[[Frame.CANCEL, 1]] * PACKET_FRAMES_MAX)
    assert len(CODEC.unpack(full)) == PACKET_FRAMES_MAX
    with pytest.raises(ProtocolError, match="too_many_frames"):
        CODEC.unpack(packet_of(*[[Frame.CANCEL, 1]] * (PACKET_FRAMES_MAX + 1)))
    with pytest.raises(ProtocolError, match="too_many_frames"):
        CODEC.unpack(packet_of([Frame.DATA, [1, 0, b"x"] * PACKET_FRAMES_MAX]))
    with pytest.raises(ProtocolError, match="malformed_packet"):  # the unpacker itself stops at three items a frame
        CODEC.unpack(packet_of([Frame.DATA, [1, 0, b"x"] * (PACKET_FRAMES_MAX + 1)]))


def test_lone_surrogates_are_refused_where_they_enter() -> None:
    with pytest.raises(InvalidRequest) as caught:
        CODEC.encode(Translate("r", ("bad \ud800 text",), "en", "de"))
    assert caught.value.code == "invalid_text"
    assert CODEC.decode(CODEC.encode(Tokens(b"ok"))) == Tokens(b"ok"), "the packer is clean after an error"


def test_a_list_that_the_peer_would_not_read_is_refused_where_it_enters() -> None:
    limit = LinkLimits().array_items_max
    fits = Translate("r", ("",) * limit, "en", "de")
    assert CODEC.decode(CODEC.encode(fits)) == fits
    with pytest.raises(InvalidRequest) as caught:
        CODEC.encode(Translate("r", ("",) * (limit + 1), "en", "de"))
    assert caught.value.code == "text_too_long"
    nested = Finished(b"", "stop", "m", {}, 0.0, n_best=(b"",) * (limit + 1))
    with pytest.raises(InvalidRequest):
        CODEC.encode(nested)


def test_a_small_packet_can_not_allocate_much() -> None:
    """Nested headers that promise long arrays: slots are allocated before items are read."""
    promise = b"\xdc" + (3 * PACKET_FRAMES_MAX).to_bytes(2, "big")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            CODEC.unpack(promise * 1000 + bytes(PACKET_BYTES_MAX - 3000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 128 << 20


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    for read in (CODEC.unpack, CODEC.decode, lambda body: CODEC.decode_as(body, Hello)):
        with contextlib.suppress(ProtocolError):
            read(data)


def test_model_names() -> None:
    assert ModelInfo("a", "1", "en", "de", "edge", "h", "h").name == "a@1"
