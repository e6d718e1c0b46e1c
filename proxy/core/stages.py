"""Where one request's time went: instants in, named slices out.

Decides: which stage each moment belongs to.
Must not know: what is measured or shown; clocks (instants are monotonic seconds of this process).
Invariants: the stages with `unaccounted` sum to the end-to-end time; no slice but `unaccounted` is negative.
`queue` holds admission, waiting for an edge and attempts that failed. `link` is the wait for the edge less what the
edge accounts for; on a stream it holds the waiting for a slow reader too.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearsay.wire.messages import STAGES, Translated


@dataclass(slots=True)
class Timeline:
    """Instants of one request, in order."""

    arrived: float
    parsed: float = 0.0
    sent: float = 0.0  # the winning attempt's request
    answered: float = 0.0

    def stages_ms(self, answer: Translated, rendered: float) -> dict[str, float]:
        """Milliseconds by stage, in the order of `STAGES`, and `unaccounted`."""
        slices = {stage: value for stage, value in answer.stages_ms.items() if stage in STAGES}
        slices["parse"] = _ms(self.arrived, self.parsed)
        slices["queue"] = _ms(self.parsed, self.sent)
        slices["link"] = max(0.0, _ms(self.sent, self.answered) - answer.accounted_ms)
        slices["render"] = _ms(self.answered, rendered)
        slices["unaccounted"] = self.e2e_ms(rendered) - sum(v for k, v in slices.items() if k != "unaccounted")
        return {stage: round(slices[stage], 3) for stage in STAGES if stage in slices}

    def e2e_ms(self, rendered: float) -> float:
        """From the request's first line to the answer ready to be written."""
        return _ms(self.arrived, rendered)


def _ms(start: float, end: float) -> float:
    return max(0.0, end - start) * 1000.0


def server_timing(stages_ms: dict[str, float], e2e_ms: float) -> str:
    """The `Server-Timing` header's value (W3C Server Timing)."""
    slices = [f"{stage};dur={value:g}" for stage, value in stages_ms.items()]
    return ", ".join([*slices, f"total;dur={e2e_ms:.3f}"])
