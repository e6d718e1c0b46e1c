"""A `LocalEngine` without a model: the translation of a text is its words in reverse order, of ids, the ids reversed.

It never sleeps. A test decides what a call costs, fails or is truncated through the hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nearsay.text.engine import EngineInfo, LocalInput, LocalOutput


def reverse_words(text: str) -> str:
    """What the fake makes of a text."""
    return " ".join(reversed(text.split()))


class FakeEngine:
    """Keeps every batch that it was given in `batches`, in order.

    `spend(batch)` is called first in `translate` (advance a fake clock, wait for a threading.Event, raise);
    `truncate(item)` says which outputs are cut in half and flagged. `ids_out`: an id engine, else a text engine.
    """

    def __init__(
        self,
        *,
        model: str = "fake@1",
        batch_max: int = 32,
        ids_out: bool = False,
        spend: Callable[[Sequence[LocalInput]], None] | None = None,
        truncate: Callable[[LocalInput], bool] | None = None,
    ) -> None:
        self.info = EngineInfo(name="fake", device="cpu", precision="none", threads=1, model=model, why="a test")
        self.batch_max = batch_max
        self.batches: list[tuple[LocalInput, ...]] = []
        self.closed = False
        self._ids_out, self._spend, self._truncate = ids_out, spend, truncate

    def translate(self, batch: Sequence[LocalInput]) -> list[LocalOutput]:
        """Reverse each input."""
        assert not self.closed
        assert len(batch) <= self.batch_max
        self.batches.append(tuple(batch))
        if self._spend is not None:
            self._spend(batch)
        return [self._one(item) for item in batch]

    def close(self) -> None:
        """Refuse any further call."""
        self.closed = True

    def _one(self, item: LocalInput) -> LocalOutput:
        truncated = self._truncate is not None and self._truncate(item)
        ids, words = tuple(reversed(item.ids)), reverse_words(item.text).split(" ")
        if truncated:
            ids, words = ids[: len(ids) // 2], words[: len(words) // 2]
        return LocalOutput(
            ids=ids if self._ids_out else (), text=None if self._ids_out else " ".join(words), truncated=truncated
        )
