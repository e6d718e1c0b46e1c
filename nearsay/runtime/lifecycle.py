"""starting -> ready -> draining -> stopped, as a table of legal moves."""

from __future__ import annotations

from collections.abc import Callable

from nearsay.wire.messages import State

MOVES: dict[State, tuple[State, ...]] = {
    "starting": ("ready", "draining", "stopped"),
    "ready": ("draining", "stopped"),
    "draining": ("stopped",),
    "stopped": (),
}


class Lifecycle:
    """State of one process. Moving to the state it is in does nothing; an illegal move is our mistake."""

    def __init__(self) -> None:
        self.state: State = "starting"
        self._callbacks: list[Callable[[State], None]] = []

    def move(self, to: State) -> None:
        """Change the state and tell the subscribers, in the order in which they came."""
        if to == self.state:
            return
        assert to in MOVES[self.state], f"{self.state} -> {to}"
        self.state = to
        for callback in tuple(self._callbacks):
            callback(to)

    def subscribe(self, callback: Callable[[State], None]) -> None:
        """Call with every new state."""
        self._callbacks.append(callback)
