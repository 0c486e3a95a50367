# SPDX-License-Identifier: MIT
"""A flame graph as a self-contained SVG, from folded stacks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH_PX = 1200
ROW_PX = 18
MARGIN_PX = 10
TITLE_PX = 48
LEGEND_PX = 22
CAPTION_LINE_PX = 15
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


@dataclass(frozen=True)
class Kind:
    """Frames of one colour: those whose name starts with one of the prefixes, and their callees."""

    label: str
    colour: str
    prefixes: tuple[str, ...]


UPDATE_PATH_KINDS = (
    Kind(
        "update path: page tables",
        "#9ecae1",
        ("_kbusUpdateStaticBar1VAMapping", "kbusUpdateStaticBar1VAMapping"),
    ),
    Kind("memory flush, whoever calls it", "#fdae6b", ("kbusFlush",)),
    Kind("TLB invalidate", "#e6550d", ("gvaspaceInvalidateTlb", "kgmmuInvalidateTlb")),
    Kind("firmware call (GSP)", "#bcbddc", ("rpcRmApiControl_GSP",)),
    Kind("page lists", "#a1d99b", ("memdescFillPages",)),
    Kind("page allocator", "#c7e9c0", ("pmaAllocatePages", "pmaFreePages")),
)


def flame_graph(
    folded: Mapping[str, int], title: str, kinds: Sequence[Kind], caption: str = ""
) -> str:
    """SVG text of ``folded`` (stack from the outermost in, joined by ';', to samples).

    A frame takes the colour of the longest prefix that its name starts with,
    and hands it on to what it calls unless that has its own. ``caption`` says
    under the picture how its samples were taken.
    """
    root = _fold(folded)
    height_px = TITLE_PX + root.depth() * ROW_PX + 2 * MARGIN_PX
    painter = _Painter(root.samples, kinds)
    if root.samples:
        painter.draw("all", root, (MARGIN_PX, height_px - MARGIN_PX), PLAIN_COLOUR)
    return document(
        title, root.samples, painter.shapes, height_px=height_px, kinds=kinds, caption=caption
    )


def document(
    title: str,
    samples: int,
    shapes: Sequence[str],
    *,
    height_px: int,
    kinds: Sequence[Kind],
    caption: str,
) -> str:
    """The whole SVG: the title, the frames, what their colours mean and the caption."""
    drawn = "".join(shapes)
    shown = [kind for kind in kinds if f'fill="{kind.colour}"' in drawn]
    foot = [*_legend(shown, height_px), *_caption_lines(caption, height_px + LEGEND_PX)]
    whole_px = height_px + LEGEND_PX + CAPTION_LINE_PX * len(_wrapped(caption)) + MARGIN_PX
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{whole_px}" '
            f'viewBox="0 0 {WIDTH_PX} {whole_px}" font-family="monospace" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{MARGIN_PX}" y="20" font-size="14">{escape(title)}</text>',
            f'<text x="{MARGIN_PX}" y="38" fill="#555">{samples} samples; '
            "width is share of samples, callers below, point at a frame for its share</text>",
            *shapes,
            *foot,
            "</svg>",
            "",
        ]
    )


def _legend(kinds: Sequence[Kind], top_px: int) -> list[str]:
    """A swatch and a label a kind, in one row."""
    row, left_px = [], float(MARGIN_PX)
    for kind in (*kinds, Kind("other", PLAIN_COLOUR, ())):
        row.append(
            f'<rect x="{left_px:.0f}" y="{top_px}" width="12" height="12" fill="{kind.colour}"/>'
            f'<text x="{left_px + 17:.0f}" y="{top_px + 10}">{escape(kind.label)}</text>'
        )
        left_px += 17 + CHARACTER_PX * len(kind.label) + 22
    return row


def _wrapped(caption: str) -> list[str]:
    return textwrap.wrap(caption, int((WIDTH_PX - 2 * MARGIN_PX) / CHARACTER_PX))


def _caption_lines(caption: str, top_px: int) -> list[str]:
    return [
        f'<text x="{MARGIN_PX}" y="{top_px + 10 + CAPTION_LINE_PX * at}" fill="#555">'
        f"{escape(line)}</text>"
        for at, line in enumerate(_wrapped(caption))
    ]


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

    def __init__(self, samples: int, kinds: Sequence[Kind]) -> None:
        self.shapes: list[str] = []
        self._samples = samples
        self._scale = (WIDTH_PX - 2 * MARGIN_PX) / max(1, samples)
        self._colours = {prefix: kind.colour for kind in kinds for prefix in kind.prefixes}

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
