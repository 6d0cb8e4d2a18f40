"""`T.prim_func`: a Python function becomes a program, a TVM `PrimFunc` at the TILE level.

In: a function whose parameters are annotated with tensors, scalars and pointers. Out: a `PrimFunc` whose parameters are
buffers and scalar variables in order, with attributes `global_symbol`, `tl.source` ("file:line") and, for tensors made
by `T.empty`, `tl.out_idx`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import Location, TileError, TileRuntimeError, TileTypeError, cleaned
from ..ir.annotations import PointerParam, ScalarParam, TensorParam
from ..ir.builder import Frame
from ..ir.dialect import GLOBAL
from ..ir.dtypes import canonical
from ..ir.tvm_api import PrimFunc, Var, decl_buffer, is_buffer, make_span
from .functions import Traceable, annotations_of, caller_names
from .trace import Trace, trace

_PACKAGE = __name__.split(".", maxsplit=1)[0]


def normalise_annotation(annotation: Any, name: str) -> TensorParam | ScalarParam | PointerParam:
    """What an annotation means as a parameter; `TileTypeError` if it means none."""
    if isinstance(annotation, (TensorParam, ScalarParam, PointerParam)):
        return annotation
    if isinstance(annotation, Var):
        if is_buffer(annotation):
            raise TileTypeError(f"parameter {name!r} is annotated with a buffer", remedy="write T.Tensor(shape, dtype)")
        return ScalarParam(canonical(str(annotation.ty.dtype)))
    if callable(annotation) and not isinstance(annotation, (str, type)) and str(getattr(annotation, "__module__", "")).startswith(_PACKAGE):
        return normalise_annotation(annotation(), name)
    try:
        return ScalarParam(canonical(annotation))
    except TileTypeError:
        raise TileTypeError(
            f"parameter {name!r} is annotated with {annotation!r}, which is no tensor, scalar or pointer type",
            remedy="write T.Tensor(shape, dtype), T.int32 or T.ptr",
        ) from None


def make_parameter(name: str, annotation: Any) -> Var:
    """The buffer or scalar variable of a parameter."""
    kind = normalise_annotation(annotation, name)
    if isinstance(kind, PointerParam):
        return Var(name, "handle")
    if isinstance(kind, ScalarParam):
        return Var(name, kind.dtype.storage)
    return decl_buffer(kind.shape, kind.dtype.storage, name, kind.scope or GLOBAL, strides=kind.strides)


def finish(
    state: Trace,
    frame: Frame,
    name: str,
    params: Sequence[Var],
    at: Location,
    outputs: Sequence[Var] = (),
    attrs: Mapping[str, Any] | None = None,
) -> PrimFunc:
    """The finished function; `outputs` become its last parameters."""
    state.builder.frames.pop()
    every = [*params, *outputs]
    span = make_span(at)
    func = PrimFunc(every, frame.body(), span=span)
    facts = {"global_symbol": name, "tl.source": f"{at.file}:{at.line}", **dict(attrs or {}), **state.builder.facts.get("attrs", {})}
    if outputs:
        facts["tl.out_idx"] = list(range(len(params), len(every)))
    return func.with_attr(facts)


def open_function(state: Trace) -> Frame:
    frame = Frame("function")
    state.builder.frames.append(frame)
    state.builder.facts["trace"] = state
    return frame


def location_of_function(traceable: Traceable) -> Location:
    source = traceable.program.source
    return Location(source.file, source.node.lineno, source.node.col_offset + 1, source.node.lineno)


def location_of_parameter(traceable: Traceable, name: str) -> Location:
    source = traceable.program.source
    arguments = source.node.args
    for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if arg is not None and arg.arg == name:
            return Location(source.file, arg.lineno, arg.col_offset + 1, arg.end_lineno or 0, (arg.end_col_offset or 0) + 1)
    return location_of_function(traceable)


def returned_outputs(state: Trace, value: Any) -> list[Var]:
    """The tensors a function returned, which must be all those it made with T.empty."""
    values = list(value) if isinstance(value, (tuple, list)) else [] if value is None else [value]
    for one in values:
        if not (type(one) is Var and any(one.same_as(o) for o in state.outputs)):
            raise TileRuntimeError(f"a kernel function returns {one!r}", remedy="return tensors made by T.empty, or nothing")
    missing = [o.name for o in state.outputs if not any(type(v) is Var and v.same_as(o) for v in values)]
    if missing:
        raise TileRuntimeError(f"{', '.join(missing)} made by T.empty, but not returned", remedy="return it from the function")
    return values


def build(function: types.FunctionType, names: Callable[[], Mapping[str, Any]], private: bool = False) -> PrimFunc:
    """Trace `function` into a program."""
    traceable = Traceable(function)
    annotations = annotations_of(function, names)
    params = []
    for parameter in inspect.signature(function).parameters.values():
        try:
            _check_parameter(parameter, annotations, function.__name__)
            params.append(make_parameter(parameter.name, annotations[parameter.name]))
        except TileError as err:
            err.locate(location_of_parameter(traceable, parameter.name))
            raise
    at = location_of_function(traceable)

    def run(state: Trace) -> PrimFunc:
        state.builder.location = at
        frame = open_function(state)
        try:
            value = traceable.start(state, "kernel", {p.name: p for p in params})
        except TileError as err:
            err.locate(state.builder.location)  # raised between two positions that the tracer watches: the statement's
            raise
        outputs = returned_outputs(state, value)
        return finish(state, frame, function.__name__, params, at, outputs, {"tl.private": True} if private else None)

    return trace(run)


def _check_parameter(parameter: inspect.Parameter, annotations: Mapping[str, Any], name: str) -> None:
    if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise TileTypeError(
            f"parameter {parameter.name!r} of {name}: only plain parameters are possible", remedy="no *, / or ** in a program"
        )
    if parameter.name not in annotations:
        raise TileTypeError(
            f"parameter {parameter.name!r} of {name} has no annotation", remedy="write T.Tensor(shape, dtype), T.int32 or T.ptr"
        )
    if parameter.default is not inspect.Parameter.empty:
        raise TileTypeError(
            f"parameter {parameter.name!r} of {name} has a default value; a program has none", remedy="pass the value, or close over it"
        )


def prim_func(
    function: Callable[..., Any] | None = None, *, private: bool = False, check_well_formed: bool = True, eager_jit: bool = False
) -> Any:
    """Make a Python function a program (`PrimFunc`).

    function: every parameter annotated: `T.Tensor(shape, dtype)`, a scalar type, `T.ptr`. Free names are compile-time
    values. private, check_well_formed, eager_jit: accepted for compatibility. Returns the program, or a decorator.
    Raises errors of `tilelang.errors` at the user's line; `SourceNotFoundError` if the source text is not at hand.
    """
    if function is None:
        return lambda f: prim_func(f, private=private, check_well_formed=check_well_formed, eager_jit=eager_jit)
    if not isinstance(function, types.FunctionType):
        raise TileTypeError(f"T.prim_func needs a Python function, not {function!r}")
    names = _definer(function)
    try:
        return build(function, names, private)
    except Exception as err:
        raise cleaned(err) from err.__cause__


def _definer(function: types.FunctionType) -> Callable[[], Mapping[str, Any]]:
    """Local names where the function is defined, for string annotations."""
    if not any(isinstance(a, str) for a in function.__annotations__.values()):
        return dict
    return caller_names(2)
