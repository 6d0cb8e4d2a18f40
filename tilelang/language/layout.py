"""Layouts in programs: `T.Layout`, `T.Fragment` and `T.annotate_layout`.

The theory is in `tilelang.layout`; here a layout is written with device expressions, called once with index variables,
and evaluated exactly from the expression it gave. `annotate_layout` records the placement as TVM's `IndexMap` in the
facts of the buffer's allocation ("layout", and "replicate" for a fragment). A layout never changes values: a target
without its own use for placement ignores it. A tensor of the caller keeps the caller's order in every kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import layout as theory
from ..errors import TileAssertionError, TileTypeError, TileValueError
from ..ir.builder import Builder, in_kernel
from ..ir.dialect import ANNOTATION_ALLOC, FRAGMENT, GLOBAL, REDUCER
from ..ir.evaluate import evaluate
from ..ir.expr import as_expr
from ..ir.positions import simplified
from ..ir.rewrite import substitute
from ..ir.tvm_api import AllocBuffer, Expr, Var, is_buffer, shape_of, tirx
from ..layout.index_map import as_shape
from ..layout.symbol import coordinate_names


class _Formula:
    """Expressions of index variables as a function of integers, arrays or expressions."""

    def __init__(self, variables: Sequence[Var], outputs: Sequence[Any], what: str) -> None:
        self.variables = list(variables)
        self.outputs = [as_expr(e) for e in outputs]
        for e in self.outputs:
            if not str(e.ty.dtype).startswith(("int", "uint")):
                raise TileTypeError(f"{what}: {e} is of type {e.ty.dtype}, expected an integer")

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        table = dict(zip(self.variables, args, strict=True))
        if any(isinstance(a, Expr) for a in args):
            values = {v: as_expr(a) for v, a in table.items()}
            return tuple(simplified(substitute(e, values)) for e in self.outputs)
        found = tuple(evaluate(e, table) for e in self.outputs)
        return found if any(isinstance(a, np.ndarray) for a in args) else tuple(int(x) for x in found)


def _variables(rank: int) -> list[Var]:
    return [Var(name, "int32") for name in coordinate_names(rank)]


class Layout(theory.Layout):
    """Physical placement of a tile: element `(i0, i1, ...)` of `shape` lies at `forward_fn(i0, i1, ...)`.

    forward_fn is called once with index variables and returns an integer expression or a list of them. Raises
    `LayoutError` (a ValueError) for extents that are not positive, and when a property needs constant extents.
    """

    def __init__(self, shape: Any, forward_fn: Callable[..., Any]) -> None:
        super().__init__(shape, forward_fn)
        variables = _variables(len(self.shape))
        self._formula = _Formula(variables, self.map_forward_index(variables), f"layout of shape {self.shape}")
        self._forward = self._formula

    def get_forward_vars(self) -> list[Var]:
        """The variables of the logical coordinates in `get_forward_index()`."""
        return self._formula.variables

    def get_forward_index(self) -> list[Expr]:
        """The physical coordinates as expressions of `get_forward_vars()`."""
        return self._formula.outputs

    def get_linearized_forward_index(self) -> Expr:
        """The physical offset, row-major in `get_output_shape()`, as one expression."""
        return simplified(as_expr(super().get_linearized_forward_index()))


class Fragment(theory.Fragment):
    """A tile spread over threads: copy `rep` of an element lies in register `index` of thread `thread`.

    forward_fn(*coords[, rep]) -> (thread, index), or forward_thread_fn(*coords[, rep]) -> thread with
    forward_index_fn(*coords) -> index (left out: each thread numbers its elements in row-major order).
    replicate: number of copies of each element. Raises `LayoutError` (a ValueError).
    """

    def __init__(
        self, shape: Any, forward_fn: Callable[..., Any] | None = None, forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1, forward_index_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(shape, forward_fn, forward_thread_fn, replicate, forward_index_fn)
        self._variables = [*_variables(len(self.shape)), Var("rep", "int32")]
        thread, index = self._rule(self._variables[:-1], self._variables[-1])
        what = f"fragment of shape {self.shape}"
        self._thread = _Formula(self._variables, [thread], what)
        self._index = None if index is None else _Formula(self._variables, index, what)
        self._rule = lambda coords, rep: (self._thread(*coords, rep)[0], None if self._index is None else self._index(*coords, rep))

    def get_forward_vars(self) -> list[Var]:
        """The variables of coordinates and copy in `thread` and `index`."""
        return self._variables

    @property
    def thread(self) -> Expr:
        """The thread as an expression of `get_forward_vars()`."""
        return self._thread.outputs[0]

    @property
    def index(self) -> list[Expr]:
        """The register as expressions of `get_forward_vars()`."""
        return self._index.outputs if self._index is not None else [as_expr(e) for e in super().index]


# ---------------------------------------------------------------- annotation
def annotate_layout(layout_map: Mapping[Any, Any]) -> None:
    """Fix where the elements of buffers lie: `T.annotate_layout({A_shared: T.Layout(...), C_local: T.Fragment(...)})`.

    A value may also be a function of the coordinates, or a maker such as `make_swizzled_layout` that takes the buffer.
    Values never change. Raises ValueError for other types, for another shape than the buffer's and for layouts that put
    two elements into one place; AssertionError for a fragment buffer without a `Fragment`.
    """
    builder = in_kernel("T.annotate_layout")
    if not isinstance(layout_map, Mapping):
        raise TileValueError(
            f"T.annotate_layout: expected a dictionary of buffers, got {type(layout_map).__name__}",
            remedy="write T.annotate_layout({buffer: layout})",
        )
    for buffer, given in layout_map.items():
        if not (isinstance(buffer, Var) and is_buffer(buffer)):
            raise TileValueError(f"T.annotate_layout: {buffer!r} is no buffer", remedy="the keys are what T.alloc_* returns")
        found = _as_layout(buffer, given)
        _check(buffer, found)
        _record(builder, buffer, found)


def _as_layout(buffer: Var, given: Any) -> theory.Layout | theory.Fragment:
    scope = buffer.scope()
    if scope in (FRAGMENT, REDUCER):
        made = given(buffer) if callable(given) and not isinstance(given, theory.Layout | theory.Fragment) else given
        if not isinstance(made, theory.Fragment):
            raise TileAssertionError(f"{buffer.name} is a fragment: its layout must be a T.Fragment, got {_kind(given)}")
        return made
    if isinstance(given, theory.Layout):
        return given
    if not callable(given) or isinstance(given, theory.Fragment):
        raise TileValueError(
            f"{buffer.name} ({scope}): {_kind(given)} is no layout for it", remedy="give a T.Layout or a function of the coordinates"
        )
    required = [p for p in inspect.signature(given).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    rank = len(shape_of(buffer))
    takes_buffer = len(required) == 1 and rank > 1 and required[0].kind is not inspect.Parameter.VAR_POSITIONAL
    made = given(buffer) if takes_buffer else Layout(shape_of(buffer), given)
    if not isinstance(made, theory.Layout):
        raise TileValueError(f"{buffer.name}: the function for its layout returned {_kind(made)}, expected a T.Layout")
    return made


def _kind(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})" if isinstance(value, int | float | str | None) else type(value).__name__


def _check(buffer: Var, found: theory.Layout | theory.Fragment) -> None:
    shape = as_shape(shape_of(buffer))
    static = all(isinstance(e, int) for e in (*shape, *found.shape))
    if len(shape) != len(found.shape) or (static and shape != found.shape):
        raise TileValueError(f"{buffer.name} has shape {shape}, its layout is of shape {found.shape}")
    if isinstance(found, theory.Fragment):
        found.check()
    elif static and buffer.scope() != GLOBAL:
        pair = found.collision()
        if pair is not None:
            raise TileValueError(f"{buffer.name}: the layout puts elements {pair[0]} and {pair[1]} into one place")


def _record(builder: Builder, buffer: Var, found: theory.Layout | theory.Fragment) -> None:
    """Add the placement to the facts of the buffer's allocation."""
    variables = _variables(len(found.shape))
    if isinstance(found, theory.Fragment):
        copy = Var("rep", "int32")
        outputs = found.forward(variables, copy)
        facts = {"layout": tirx.IndexMap([*variables, copy], [as_expr(e) for e in outputs], None), "replicate": found.replicate_size}
    else:
        facts = {"layout": tirx.IndexMap(variables, [as_expr(e) for e in found.map_forward_index(variables)], None)}
    for frame in builder.frames:
        for k, stmt in enumerate(frame.allocs):
            if isinstance(stmt, AllocBuffer) and stmt.buffer.same_as(buffer):
                annotations = dict(stmt.annotations or {})
                annotations[ANNOTATION_ALLOC] = {**dict(annotations.get(ANNOTATION_ALLOC, {})), **facts}
                frame.allocs[k] = AllocBuffer(stmt.buffer, annotations, stmt.span)
                return
