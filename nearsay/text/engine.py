"""The seam between an edge worker and whatever runs its small models.

Decides: what a local engine takes and gives, and which class runs a model. Must not know: requests, batching policy.
Invariants: one output an input, in order; the translation of a text doesn't depend on its neighbours in the batch;
`truncated` is True whenever the engine stopped before the model's own end of sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from nearsay.text.errors import EngineUnavailable, ModelError
from nearsay.text.registry import ModelEntry

Device = Literal["auto", "cpu", "cuda"]

SOURCE_TOKENS_MAX = 256  # a longer source is answered `truncated` without being run
TARGET_TOKENS_MAX = 256


class LocalInput(msgspec.Struct, frozen=True):
    """One segment. `ids` are its source ids without eos; id engines read these, text engines read `text`."""

    text: str
    ids: tuple[int, ...]


class LocalOutput(msgspec.Struct, frozen=True):
    """One translation. `text` None: the caller decodes `ids` (target ids without eos). Text engines leave `ids` empty.

    `truncated`: the engine ran into a length bound; what is here is a prefix, possibly empty.
    """

    ids: tuple[int, ...]
    text: str | None
    truncated: bool


class EngineInfo(msgspec.Struct, frozen=True):
    """What runs a model and why it was chosen; `why` is a sentence for people (`nearsay doctor`)."""

    name: str  # "ctranslate2"
    device: str  # "cpu", "cuda"
    precision: str  # "int8", "float16"
    threads: int
    model: str  # "en-de-student@1"
    why: str
    source_tokens_max: int = SOURCE_TOKENS_MAX
    target_tokens_max: int = TARGET_TOKENS_MAX

    def __str__(self) -> str:
        return f"{self.name} {self.precision} {self.device}"


class LocalEngine(Protocol):
    """Runs one model. Open, use and close it on one thread."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def batch_max(self) -> int:
        """Most inputs of one call; 1 for an engine that gains nothing from batches."""
        ...

    def translate(self, batch: Sequence[LocalInput]) -> list[LocalOutput]:
        """Translate up to `batch_max` inputs; blocks, releasing the interpreter lock. Raises WrongThread."""
        ...

    def close(self) -> None:
        """Free the model. Idempotent."""
        ...


def open_engine(entry: ModelEntry, *, device: Device = "auto", threads: int = 1) -> LocalEngine:
    """Load a model and run it once, so that the first request pays nothing for it.

    Call this on the thread that will call `translate`. `auto` takes CUDA where it works, else the CPU.
    Raises ModelError (damaged files, an engine that doesn't run in an edge worker), EngineUnavailable (extra, device).
    """
    try:
        if entry.engine == "ctranslate2":
            from nearsay.text.ct2 import Ct2Engine

            return Ct2Engine(entry, device=device, threads=threads)
        if entry.engine == "fxtranslate":
            from nearsay.text.process import ProcessEngine

            return ProcessEngine(entry, device=device)  # the native engine has one thread
    except ImportError as error:
        raise EngineUnavailable(entry.engine, f"can't be imported: {error}", extra="edge") from error
    raise ModelError(entry.path, f"engine {entry.engine!r} doesn't run in an edge worker")
