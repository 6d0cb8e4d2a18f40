"""Aligned plain-text tables, and the words of their cells. In: values. Out: strings without trailing blanks or newline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import Location


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as their widest cell, numbers (columns `right`) to the right."""
    lines = [header, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]

    def text(line: Sequence[str]) -> str:
        cells = [cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([text(header), "  ".join("-" * w for w in widths), *map(text, rows)])


def place(at: Location | None) -> str:
    """File and line, "?" if unknown."""
    return "?" if at is None else f"{Path(at.file).name}:{at.line}"


def shape_text(shape: Sequence[int | str]) -> str:
    return " x ".join(map(str, shape)) or "1"
