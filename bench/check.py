"""Whether the committed results stand: every case has one, with the measures it must have, each past its floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bench.report import RESULTS, Measure, Result, read_result

# Case to the measures that its result may not lack; a result may have more.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "edge_path": ("short_p50_ratio", "short_p99_ratio", "throughput_ratio", "proxy_link_p50_ms"),
    "link": (),
    "firefox_share": (),
    "decode_step": (),
    "regions": ("share_fastest", "flaps_after_recovery", "failed_requests", "crowd_lost_ms", "decision_us"),
    "steer": ("steered_share", "ranked_share", "decision_us"),
    "swap": ("failed_requests", "p95_while_swapping_over_calm", "memory_after_over_first_swap"),
    "tenant_flood": ("calm_p99_ratio", "calm_failed"),
    "tail": (
        "hedge_p999_ratio",
        "hedge_extra_requests",
        "slow_edge_eject_s",
        "killed_edge_failed",
        "killed_edge_normal_s",
        "flood_p99_ratio",
    ),
    "mixed_load": ("origin_p99_ratio", "origin_batch_ratio", "edge_p99_ratio", "edge_batch_ratio"),
    "stages": ("edge_unaccounted_p95", "origin_unaccounted_p95"),
    "draft_verify": (
        "drafted_passes_over_greedy",
        "captions_passes_over_scratch",
        "captions_plain_passes_over_scratch",
    ),
    "stability": ("default_erasure_over_plain", "default_final_bleu_lost"),
}


class Verdict(msgspec.Struct, frozen=True):
    """One measure, or one thing wrong with a result (`measure` None)."""

    case: str
    ok: bool
    detail: str
    measure: Measure | None = None


def check(folder: Path = RESULTS) -> Iterator[Verdict]:
    """Verdicts on every required case and on every other result in the folder."""
    others = {path.stem for path in folder.glob("*.json")} - REQUIRED.keys()
    for case in (*REQUIRED, *sorted(others)):
        path = folder / f"{case}.json"
        if not path.exists():
            yield Verdict(case, False, "has no result: python -m bench run " + case)
            continue
        try:
            result = read_result(path)
        except msgspec.MsgspecError as error:
            yield Verdict(case, False, f"can't be read: {error}")
        else:
            yield from _check_result(case, result)


def _check_result(case: str, result: Result) -> Iterator[Verdict]:
    if result.case != case:
        yield Verdict(case, False, f"is a result of {result.case!r}")
    if not result.measures:
        yield Verdict(case, False, "measured nothing")
    missing = set(REQUIRED.get(case, ())) - {measure.name for measure in result.measures}
    for name in sorted(missing):
        yield Verdict(case, False, f"lacks {name}")
    for measure in result.measures:
        yield Verdict(case, measure.passes, _line(measure), measure)


def _line(measure: Measure) -> str:
    sign = "<=" if measure.better == "lower" else ">="
    reached = "target reached" if measure.on_target else "floor held" if measure.passes else "MISSES ITS FLOOR"
    bounds = f"floor {sign} {measure.floor:g}, target {sign} {measure.target:g}"
    return f"{measure.name} {measure.value:.4g} {measure.unit}".rstrip() + f" ({bounds}): {reached}"
