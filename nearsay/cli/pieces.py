"""Long texts in pieces, and streamed segments in order: both keep the layout, byte for byte. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nearsay.client import SegmentDone
from nearsay.wire.errors import InternalError

PIECE_CHARS = 4_000  # a request's worth: enough to batch, short enough to show progress


def pieces(text: str, chars_max: int = PIECE_CHARS) -> Iterator[str]:
    """Cut at line ends into pieces of at most `chars_max`, a single longer line at a space, or as it comes without one.

    `"".join(pieces(text)) == text`, always.
    """
    start = 0
    while len(text) - start > chars_max:
        window_end = start + chars_max
        end = _last(text, "\n\n", start, window_end) or _last(text, "\n", start, window_end)
        end = end or _last(text, " ", start, window_end) or window_end
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _last(text: str, mark: str, start: int, end: int) -> int:
    """Position behind the last `mark` in the range, 0 for none."""
    at = text.rfind(mark, start, end)
    return at + len(mark) if at > start else 0


class ReadyPrefix:
    """What of one text can be shown for good, as its segments come, in whatever order."""

    def __init__(self) -> None:
        self._shown = ""
        self._next = 0
        self._waiting: dict[int, str] = {}

    def add(self, event: SegmentDone) -> str:
        """What has become showable by this segment."""
        self._waiting[event.segment] = event.gap + event.text
        new = ""
        while self._next in self._waiting:
            new += self._waiting.pop(self._next)
            self._next += 1
        self._shown += new
        return new

    def restart(self) -> None:
        """The segments come anew. Where some have been shown, the rest waits for the whole answer."""
        self._waiting.clear()
        self._next = -1 if self._shown else 0

    def finish(self, text: str) -> str:
        """The rest of the whole answer. Raises InternalError when what was shown isn't its start."""
        if not text.startswith(self._shown):
            raise InternalError("the streamed segments and the whole answer differ")
        return text[len(self._shown) :]
