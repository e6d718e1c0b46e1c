from __future__ import annotations

import pytest

from nearsay.wire.protocol import Side, StreamState
from nearsay.wire.streams import Streams


def test_ids_are_odd_or_even_by_side_and_rise() -> None:
    connect, accept = Streams(Side.CONNECT), Streams(Side.ACCEPT)
    assert [connect.open_ours().id for _ in range(3)] == [1, 3, 5]
    assert [accept.open_ours().id for _ in range(3)] == [2, 4, 6]


def test_every_id_has_a_state() -> None:
    streams = Streams(Side.CONNECT)
    assert streams.state(1) is StreamState.IDLE_OURS
    assert streams.state(2) is StreamState.IDLE_PEERS
    ours = streams.open_ours()
    streams.pass_peers(6)
    peers = streams.open_peers(6, StreamState.OPENING)
    assert streams.state(1) is StreamState.ASKING
    assert streams.state(6) is StreamState.OPENING
    assert streams.state(4) is StreamState.CLOSED, "an id that was passed over"
    assert streams.state(8) is StreamState.IDLE_PEERS
    for record in (ours, peers):
        streams.close(record)
        assert streams.state(record.id) is StreamState.CLOSED
    assert streams.state(-2) is StreamState.CLOSED and streams.state(0) is StreamState.CLOSED


def test_closing_releases_the_place_and_what_was_held_exactly_once() -> None:
    streams = Streams(Side.ACCEPT)
    streams.pass_peers(1)
    record = streams.open_peers(1, StreamState.ANSWERING)
    record.receive.add(b"abc", False, 100)
    streams.held_bytes += record.receive.held
    assert (streams.peers, len(streams)) == (1, 1)
    streams.close(record)
    assert (streams.peers, streams.ours, len(streams), streams.held_bytes) == (0, 0, 0, 0)
    with pytest.raises(KeyError):
        streams.close(record)


def test_clear_closes_all() -> None:
    streams = Streams(Side.ACCEPT)
    streams.open_ours()
    streams.pass_peers(1)
    streams.open_peers(1, StreamState.ANSWERING)
    streams.clear()
    assert (len(streams), streams.ours, streams.peers) == (0, 0, 0)
