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
    """State of one process. Moving to the state it is in does nothing; an illegal move is our mistake.

    notes: what /readyz and /stats say besides; values that JSON can carry. failure: why the process ends by itself.
    """

    def __init__(self) -> None:
        self.state: State = "starting"
        self.notes: dict[str, object] = {}
        self.failure = ""
        self._callbacks: list[Callable[[State], None]] = []

    def move(self, to: State) -> None:
        """Change the state and tell the subscribers, in the order in which they came."""
        if to == self.state:
            return
        assert to in MOVES[self.state], f"{self.state} -> {to}"
        self.state = to
        for callback in tuple(self._callbacks):
            callback(to)

    def fail(self, reason: str) -> None:
        """It can't go on: drain, then end with a failure, for whoever supervises the process to start it again. Nothing
        happens to one that is ending anyhow."""
        if self.state in ("starting", "ready"):
            self.failure = reason
        if self.state == "ready":
            self.move("draining")

    def subscribe(self, callback: Callable[[State], None]) -> None:
        """Call with every new state."""
        self._callbacks.append(callback)
