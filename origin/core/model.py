"""What the rest of the origin must know of a loaded model.

Decides: nothing. It carries the facts that the door checks against and the scheduler divides.
Must not know: tensors, files, how an engine runs the model.
Invariant: a beam as wide as `beam_max` fits into the model's slots.
"""

from __future__ import annotations

import msgspec

from nearsay.wire.messages import ModelInfo


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One resident model.

    slots: rows that can be decoded at the same time; a beam of width w takes w of them.
    beam: width for a sequence that names none; 1 is greedy. Only greedy sequences can have a draft verified.
    pass_tokens: a decoder pass costs as much, before it reads any token, as reading so many; as measured at the start.
    Token limits count every id of a sequence: the source's with its closing eos, the target's without it.
    """

    info: ModelInfo
    src_vocab_size: int
    trg_vocab_size: int
    eos_id: int = 0
    prefix_ids: tuple[int, ...] = ()
    slots: int
    beam: int = 1
    beam_max: int = 8
    source_tokens_max: int = 256
    target_tokens_max: int = 256
    pass_tokens: float = 16.0

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= self.beam_max <= self.slots:
            raise ValueError(f"beam {self.beam} <= beam_max {self.beam_max} <= slots {self.slots} doesn't hold")

    @property
    def name(self) -> str:
        """`model@version`."""
        return self.info.name
