"""Points on curves as a small SVG, drawn by hand: enough for a result that a person should see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

Point = tuple[float, float, str]  # x, y, label
WIDTH, HEIGHT, MARGIN = 460, 320, 52
COLOURS = ("#1f6fb2", "#c4511d", "#2a8c4a", "#7a4fa3", "#6b6b6b")
TICKS = 5


def svg(panels: Sequence[tuple[str, str, str, Mapping[str, Sequence[Point]]]]) -> str:
    """Panels side by side: title, what x and y are, and the curves by name."""
    drawn = [_panel(at * WIDTH, *panel) for at, panel in enumerate(panels)]
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>", ""])


def _panel(left: int, title: str, x_name: str, y_name: str, curves: Mapping[str, Sequence[Point]]) -> str:
    points = [point for curve in curves.values() for point in curve]
    x_low, x_high = _span([point[0] for point in points])
    y_low, y_high = _span([point[1] for point in points])
    inner_width, inner_height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - x_low) / (x_high - x_low), (y - y_low) / (y_high - y_low)
        return left + MARGIN + across * inner_width, HEIGHT - MARGIN - up * inner_height

    parts = [
        _text(left + WIDTH / 2, 20, title, "middle", "bold"),
        _text(left + WIDTH / 2, HEIGHT - 10, x_name, "middle"),
    ]
    parts.append(_text(left + 8, MARGIN - 14, y_name))
    for tick in range(TICKS):
        share = tick / (TICKS - 1)
        x, y = x_low + share * (x_high - x_low), y_low + share * (y_high - y_low)
        at_x, at_y = place(x, y)
        parts.append(
            f'<path d="M{at_x:.1f} {MARGIN}V{HEIGHT - MARGIN}M{left + MARGIN} {at_y:.1f}H{left + WIDTH - MARGIN}"'
        )
        parts[-1] += ' stroke="#ddd"/>'
        parts += [
            _text(at_x, HEIGHT - MARGIN + 14, f"{x:.2g}", "middle"),
            _text(left + MARGIN - 6, at_y + 4, f"{y:.3g}", "end"),
        ]
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        where = [place(x, y) for x, y, _ in curve]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in where)
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for (x, y), (_, _, label) in zip(where, curve, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            parts.append(_text(x + 5, y - 5, label, colour=colour))
        parts.append(_text(where[0][0] - 6, where[0][1] + 14, name, "end", "bold", colour))
    return "\n".join(parts)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 1.0
    return low - room, high + room


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal", colour: str = "#222") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
