"""Rows as a table for a terminal, drawn as Faust does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CELL_MAX = 60  # characters of one cell


def drawn(rows: Iterable[Sequence[object]], head: Sequence[str], title: str = "") -> str:
    """A box with a line for each row."""
    cells = [[_cell(each) for each in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    top = "┬".join("─" * (width + 2) for width in widths)
    lines = [f"┌{title}{top[len(title) :]}┐" if len(title) < len(top) else f"{title}\n┌{top}┐"]
    for number, row in enumerate(cells):
        lines.append("│" + "│".join(f" {text:<{width}} " for text, width in zip(row, widths, strict=True)) + "│")
        if number == 0:
            lines.append("├" + "┼".join("─" * (width + 2) for width in widths) + "┤")
    lines.append("└" + "┴".join("─" * (width + 2) for width in widths) + "┘")
    return "\n".join(lines)


def _cell(value: object) -> str:
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"
