"""What the scheduler has decided so far, in numbers. Written by the scheduler, read as gauges."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct):
    """Since the start.

    refused_full: turned away, because a queue was full. forecast_late: expected to miss their deadline, and turned away
    if admission is on; if it is not, forecast_late_in_time of them finished in time all the same. forecast_missed ran
    out of time without having been expected to.
    evictions, resumes: batch sequences that lost their slots, and got slots again. row_steps_lost: passes of each row
    of beams that lost their slots: they start again. paused_rows: batch sequences that a step left in their slots, a
    step each. held: plans that held newcomers over for company.
    replays: sequences that were in a broken pass, and begun again behind what they had.
    """

    refused_full: int = 0
    forecast_late: int = 0
    forecast_late_in_time: int = 0
    forecast_missed: int = 0
    evictions: int = 0
    resumes: int = 0
    row_steps_lost: int = 0
    paused_rows: int = 0
    held: int = 0
    replays: int = 0
