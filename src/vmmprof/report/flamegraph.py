# SPDX-License-Identifier: MIT
"""A flame graph as a self-contained SVG, from folded stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

WIDTH_PX = 1200
ROW_PX = 18
MARGIN_PX = 10
TITLE_PX = 48
CHARACTER_PX = 6.6
# A frame narrower than this cannot be seen, let alone hit by a mouse.
MIN_WIDTH_PX = 0.3

PLAIN_COLOUR = "#d9d9d9"
USER_SPACE = "[user space]"


@dataclass
class _Frame:
    samples: int = 0
    callees: dict[str, _Frame] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((callee.depth() for callee in self.callees.values()), default=0)


def flame_graph(folded: Mapping[str, int], title: str, colours: Mapping[str, str]) -> str:
    """SVG text of ``folded`` (stack from the outermost in, joined by ';', to samples).

    A frame takes the colour of the longest key of ``colours`` that its name
    starts with, and hands it on to what it calls unless that has its own.
    """
    root = _fold(folded)
    height_px = TITLE_PX + root.depth() * ROW_PX + 2 * MARGIN_PX
    painter = _Painter(root.samples, colours)
    if root.samples:
        painter.draw("all", root, (MARGIN_PX, height_px - MARGIN_PX), PLAIN_COLOUR)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height_px}" '
            f'viewBox="0 0 {WIDTH_PX} {height_px}" font-family="monospace" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{MARGIN_PX}" y="20" font-size="14">{escape(title)}</text>',
            f'<text x="{MARGIN_PX}" y="38" fill="#555">{root.samples} samples; '
            "width is share of samples, callers below, point at a frame for its share</text>",
            *painter.shapes,
            "</svg>",
            "",
        ]
    )


def _fold(folded: Mapping[str, int]) -> _Frame:
    root = _Frame()
    for stack, samples in folded.items():
        frame = root
        frame.samples += samples
        for name in stack.split(";") if stack else [USER_SPACE]:
            frame = frame.callees.setdefault(name, _Frame())
            frame.samples += samples
    return root


class _Painter:
    """Turns frames into SVG, callees on top of their callers."""

    def __init__(self, samples: int, colours: Mapping[str, str]) -> None:
        self.shapes: list[str] = []
        self._samples = samples
        self._scale = (WIDTH_PX - 2 * MARGIN_PX) / max(1, samples)
        self._colours = colours

    def draw(self, name: str, frame: _Frame, corner_px: tuple[float, float], above: str) -> None:
        """A frame and its callees; the corner is the lower left, ``above`` the caller's colour."""
        left_px, bottom_px = corner_px
        width_px = frame.samples * self._scale
        if width_px < MIN_WIDTH_PX:
            return
        colour = self._colour(name) or above
        self.shapes.append(self._shape(name, frame, corner_px, colour))
        for callee_name in sorted(frame.callees):
            callee = frame.callees[callee_name]
            self.draw(callee_name, callee, (left_px, bottom_px - ROW_PX), colour)
            left_px += callee.samples * self._scale

    def _colour(self, name: str) -> str | None:
        matches = [prefix for prefix in self._colours if name.startswith(prefix)]
        return self._colours[max(matches, key=len)] if matches else None

    def _shape(self, name: str, frame: _Frame, corner_px: tuple[float, float], colour: str) -> str:
        left_px, bottom_px = corner_px
        width_px = frame.samples * self._scale
        characters = int((width_px - 4) / CHARACTER_PX)
        label = name if len(name) <= characters else name[: max(0, characters - 1)] + "…"
        text = f'<text x="{left_px + 2:.2f}" y="{bottom_px - 5:.1f}">{escape(label)}</text>'
        return (
            f"<g><title>{escape(name)}: {frame.samples} samples, "
            f"{100 * frame.samples / self._samples:.2f} %</title>"
            f'<rect x="{left_px:.2f}" y="{bottom_px - ROW_PX:.1f}" width="{width_px:.2f}" '
            f'height="{ROW_PX - 1}" fill="{colour}" stroke="white" stroke-width="0.4"/>'
            f"{text if characters >= 3 else ''}</g>"
        )
