"""Pictures of layouts. In: a `Layout` or `Fragment` of one or two dimensions. Out: files; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TileNotSupportedError, TileTypeError, TileValueError
from ..layout import Fragment, Layout


def _cells(layout: Any) -> tuple[np.ndarray, list[list[str]]]:
    """(number by which a cell is coloured, text of each cell): the thread of a fragment, the offset of a layout."""
    shape = tuple(layout.shape)
    if len(shape) not in (1, 2):
        raise TileValueError(f"a picture of a layout of shape {shape}", remedy="one or two dimensions can be drawn")
    colours = np.zeros(shape, np.int64)
    texts = np.empty(shape, object)
    for place in np.ndindex(*shape):
        if isinstance(layout, Fragment):
            owners = [tuple(int(v) for v in layout.forward(place, rep)) for rep in range(layout.replicate_size)]
            colours[place] = owners[0][0]
            texts[place] = f"T{','.join(str(t) for t, _ in owners)}\nL{owners[0][1]}"
        else:
            colours[place] = int(layout.linear(*place))
            texts[place] = str(colours[place])
    return np.atleast_2d(colours), np.atleast_2d(texts).tolist()


def plot_layout(
    layout: Layout | Fragment, save_directory: Any = "./tmp", name: str = "layout", colormap: str | None = None, verbose: bool = False,
    formats: str | Sequence[str] = "pdf", view: str = "input", grid_shape: Any = None,
) -> None:  # fmt: skip
    """Draw each element with the thread and register that hold it (fragments) or its offset (layouts).

    Writes save_directory/name.format for each format ("pdf", "png", "svg", "all", or several of them). grid_shape and other
    values of `view` are accepted; the picture always shows the logical coordinates.
    """
    if not isinstance(layout, Layout | Fragment):
        raise TileTypeError(f"plot_layout of a {type(layout).__name__}", remedy="give a T.Layout or T.Fragment")
    try:
        import matplotlib.figure  # noqa: PLC0415 (optional)  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise TileNotSupportedError("plot_layout without matplotlib", remedy="pip install matplotlib") from None
    colours, texts = _cells(layout)
    rows, columns = colours.shape
    figure = matplotlib.figure.Figure(figsize=(max(4.0, 0.5 * columns), max(3.0, 0.5 * rows)))
    axes = figure.add_subplot()
    axes.imshow(colours, cmap=colormap or "tab20")
    for i in range(rows):
        for j in range(columns):
            axes.text(j, i, texts[i][j], ha="center", va="center", fontsize=6)
    axes.set_title(name)
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = formats.replace(" ", "").split(",") if isinstance(formats, str) else list(formats)
    for kind in ("pdf", "png", "svg") if "all" in wanted else wanted:
        figure.savefig(folder / f"{name}.{kind}", bbox_inches="tight")
        if verbose:
            print(folder / f"{name}.{kind}")


__all__ = ["plot_layout"]
