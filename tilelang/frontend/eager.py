"""Eager style: a function that is itself the kernel, compiled for the tensors it is called with.

The launcher's use, in order:

1. `analyse(fn) -> EagerSignature`: which parameters are tensors, scalars and addresses, which are compile-time values;
   `None` if `fn` is a factory (lazy style).
2. `signature.probe(statics, consts) -> EagerLayout` for the compile-time values of a call: the annotation of every
   tensor, and for each name of `T.const` where it is read: (parameter, "shape" | "stride", axis).
   `layout.read(shapes, strides)` gives the values of the constants from the actual tensors.
3. `signature.trace(statics, consts) -> PrimFunc`: parameters are the run-time parameters in order, then the outputs made
   by `T.empty` in the order in which they are returned; `tl.out_idx` lists the outputs.
   (statics, consts) with the target is the key of a compiled kernel.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import JITNoBuilderError, SourceNotFoundError, TileRuntimeError, TileTypeError, TileValueError, cleaned
from ..ir.annotations import PointerParam, ScalarParam, TensorParam, shape_tuple
from ..ir.builder import active, current
from ..ir.dtypes import canonical, dtype
from ..ir.tvm_api import PrimFunc, Var, decl_buffer
from .functions import Traceable, annotations_of, caller_names
from .prim_func import finish, location_of_function, make_parameter, normalise_annotation, open_function, returned_outputs
from .source import find_source
from .trace import Trace, trace

Place = tuple[str, str, int]  # parameter, "shape" or "stride", axis
_EAGER_CALLS = {"Kernel", "ClusterKernel", "const", "empty"}


class _Probed(BaseException):
    """Every tensor's annotation is known: probing may stop. Never leaves this module."""


@dataclass
class EagerLayout:
    """What the annotations say for given compile-time values. tensors: annotation of each run-time parameter (extents may
    hold variables of `T.const`). places: where each constant can be read. given: constants passed by keyword."""

    tensors: dict[str, TensorParam | ScalarParam | PointerParam]
    places: dict[str, list[Place]]
    given: dict[str, int] = field(default_factory=dict)

    def read(self, shapes: Mapping[str, Sequence[int]], strides: Mapping[str, Sequence[int]] | None = None) -> dict[str, int]:
        """Values of the constants, from the shapes (and strides, in elements) of the actual tensors by parameter name.

        Raises TileValueError if two tensors disagree, or a tensor has another rank than its annotation."""
        out = dict(self.given)
        for name, places in self.places.items():
            for parameter, kind, axis in places:
                actual = shapes if kind == "shape" else strides or {}
                if parameter not in actual:
                    continue
                extents = actual[parameter]
                annotation = self.tensors[parameter]
                assert isinstance(annotation, TensorParam)
                if len(extents) != annotation.ndim:
                    raise TileValueError(f"{parameter}: expected {annotation.ndim} dimensions, got {len(extents)} (shape {tuple(extents)})")
                value = int(extents[axis])
                if out.setdefault(name, value) != value:
                    raise TileValueError(
                        f"{name} is {out[name]}, but {parameter}.{kind}[{axis}] is {value}", remedy="pass tensors of matching sizes"
                    )
        return out


@dataclass(frozen=True)
class EagerParameter:
    """kind: "tensor", "scalar" or "pointer" (passed at run time), or "static" (a compile-time value). default:
    `inspect.Parameter.empty` if there is none."""

    name: str
    kind: str
    annotation: Any = None
    default: Any = inspect.Parameter.empty


class EagerSignature:
    """The parameters of an eager function. parameters: `EagerParameter`s in order."""

    def __init__(self, function: types.FunctionType, parameters: Sequence[EagerParameter], declared: frozenset[str]) -> None:
        self.function = function
        self.name = function.__name__
        self.parameters = tuple(parameters)
        self.runtime = tuple(p.name for p in parameters if p.kind != "static")
        self.static = tuple(p.name for p in parameters if p.kind == "static")
        self._declared = declared  # run-time parameters whose annotation stands in the body

    def probe(self, statics: Mapping[str, Any], consts: Mapping[str, int] | None = None) -> EagerLayout:
        """What the annotations say for these compile-time values (a value for each of `static`)."""
        run = _Run(self, dict(statics), dict(consts or {}), probing=True)
        try:
            trace(run.trace)
        except _Probed:
            pass
        except Exception as err:
            raise cleaned(err) from err.__cause__
        return EagerLayout(dict(run.annotations), run.places(), {k: v for k, v in run.consts.items() if k in run.asked})

    def trace(self, statics: Mapping[str, Any], consts: Mapping[str, int] | None = None) -> PrimFunc:
        """The program for these compile-time values and these values of the `T.const` names."""
        run = _Run(self, dict(statics), dict(consts or {}), probing=False)
        try:
            return trace(run.trace)
        except Exception as err:
            raise cleaned(err) from err.__cause__


class _Run:
    """One probe or trace of an eager function."""

    def __init__(self, signature: EagerSignature, statics: dict[str, Any], consts: dict[str, int], probing: bool) -> None:
        self.signature, self.statics, self.consts, self.probing = signature, statics, consts, probing
        self.annotations: dict[str, Any] = {}
        self.asked: dict[str, Var | int] = {}
        self.params: dict[str, Var] = {}
        self.values: dict[str, Any] = {}

    def trace(self, state: Trace) -> PrimFunc:
        signature = self.signature
        self.params, self.annotations, self.asked = {}, {}, {}
        traceable = Traceable(signature.function)
        at = location_of_function(traceable)
        state.builder.location = at
        state.builder.facts["eager"] = self
        frame = open_function(state)
        arguments = dict(self.statics)
        for parameter in signature.parameters:
            if parameter.kind != "static" and parameter.name not in signature._declared:
                self._add(parameter.name, parameter.annotation)
        arguments.update(self.params)
        self._stop_when_known()
        self.environment: dict[str, Any] = arguments
        value = traceable.start(state, "eager", arguments, declare=lambda name, annotation: self.declare(state, name, annotation))
        if self.probing:
            raise _Probed
        missing = [n for n in signature.runtime if n not in self.params]
        if missing:
            raise TileRuntimeError(
                f"no annotation of {', '.join(missing)} was executed", remedy="write `A: T.Tensor(shape, dtype)` at the top"
            )
        outputs = returned_outputs(state, value)
        return finish(state, frame, signature.name, [self.params[n] for n in signature.runtime], at, outputs)

    def _add(self, name: str, annotation: Any) -> Var:
        self.annotations[name] = normalise_annotation(annotation, name)
        self.params[name] = make_parameter(name, annotation)
        return self.params[name]

    def declare(self, state: Trace, name: str, annotation: Any) -> None:
        """A bare annotation in the body: the parameter becomes a tensor or scalar of the program."""
        if name not in self.signature.runtime:
            return
        self._add(name, annotation)
        state.builder.facts["activation_env"][name] = self.params[name]
        self._stop_when_known()

    def _stop_when_known(self) -> None:
        if self.probing and all(n in self.annotations for n in self.signature.runtime) and self.signature._declared:
            raise _Probed

    def const(self, name: str, kind: dtype) -> Any:
        if name in self.consts:
            self.asked[name] = int(self.consts[name])
            return self.asked[name]
        if not self.probing:
            raise TileRuntimeError(
                f"T.const {name!r} is no extent or stride of any tensor",
                remedy=f"use {name} directly as a dimension of a tensor, or pass {name}=...",
            )
        return self.asked.setdefault(name, Var(name, str(kind)))

    def places(self) -> dict[str, list[Place]]:
        """Where each constant stands directly as an extent or a stride."""
        found: dict[str, list[Place]] = {n: [] for n, v in self.asked.items() if isinstance(v, Var)}
        for parameter, annotation in self.annotations.items():
            if not isinstance(annotation, TensorParam):
                continue
            for kind, values in (("shape", annotation.shape), ("stride", annotation.strides or ())):
                for axis, value in enumerate(values):
                    for name, var in self.asked.items():
                        if isinstance(value, Var) and isinstance(var, Var) and value.same_as(var):
                            found[name].append((parameter, kind, axis))
        unused = [n for n, places in found.items() if not places]
        if unused:
            raise TileRuntimeError(
                f"T.const {', '.join(unused)} is no extent or stride of any tensor",
                remedy="use it directly as a dimension, or pass it by keyword",
            )
        return found


# ---------------------------------------------------------------- which style
def analyse(function: Callable[..., Any], depth: int = 1) -> EagerSignature | None:
    """The signature of an eager function; None if `function` is a factory that returns a program.

    depth: frames between the caller and the place where `function` is defined (for string annotations)."""
    if not isinstance(function, types.FunctionType):
        return None
    try:
        node = find_source(function).node
    except SourceNotFoundError:
        return None
    inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n is not node]
    if any(_last_name(d) == "prim_func" for n in inner for d in n.decorator_list):
        return None
    annotations = annotations_of(function, caller_names(depth))
    declared = _annotated_in_body(node)
    parameters = [_parameter(p, annotations, declared) for p in inspect.signature(function).parameters.values()]
    calls = {_last_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    if not calls & _EAGER_CALLS and all(p.kind == "static" for p in parameters):
        return None
    names = frozenset(p.name for p in parameters if p.kind != "static" and p.name in declared)
    return EagerSignature(function, parameters, names)


def _parameter(parameter: inspect.Parameter, annotations: Mapping[str, Any], declared: frozenset[str]) -> EagerParameter:
    name, annotation = parameter.name, annotations.get(parameter.name)
    if name in declared:
        return EagerParameter(name, "tensor", None, parameter.default)
    if annotation is None or isinstance(annotation, type) or (isinstance(annotation, str) and not isinstance(annotation, dtype)):
        return EagerParameter(name, "static", None, parameter.default)
    try:
        kind = normalise_annotation(annotation, name)
    except TileTypeError:
        return EagerParameter(name, "static", None, parameter.default)
    names = {TensorParam: "tensor", ScalarParam: "scalar", PointerParam: "pointer"}
    return EagerParameter(name, names[type(kind)], kind, parameter.default)


def _last_name(node: ast.AST) -> str:
    """`prim_func` of `T.prim_func`, `T.prim_func(...)` or `prim_func`."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _annotated_in_body(node: ast.FunctionDef) -> frozenset[str]:
    parameters = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
    found = [n.target.id for n in ast.walk(node) if isinstance(n, ast.AnnAssign) and n.value is None and isinstance(n.target, ast.Name)]
    return frozenset(found) & parameters


# ---------------------------------------------------------------- T.const, T.empty
def split_names(text: Any, what: str) -> list[str]:
    """Names in "M, N" or "M N"."""
    names = text.replace(",", " ").split() if isinstance(text, str) else []
    if not names or not all(n.isidentifier() for n in names):
        raise TileValueError(f"{what}: {text!r} is no list of names", remedy='write "M, N"')
    return names


def const(names: str, dtype: Any = "int32") -> Any:
    """Sizes read from the actual tensors of a call, one compilation for each set of values. One name gives one value,
    several ("M, N" or "M N") a tuple. Raises JITNoBuilderError outside an eager function."""
    run = current("T.const").facts.get("eager") if active() else None
    if run is None:
        raise JITNoBuilderError(
            "T.const outside an eager function", remedy="use it in a function under @tilelang.jit that is itself the kernel"
        )
    kind = canonical(dtype)
    found = tuple(run.const(n, kind) for n in split_names(names, "T.const"))
    return found[0] if len(found) == 1 else found


def empty(*shape: Any, dtype: Any = None) -> Var:
    """An output tensor, allocated by the launcher and returned by the kernel: `T.empty((M, N), "float16")`, `T.empty(M, N)`.

    shape: extents in elements. dtype: element type, float32 if not given. The function must return it."""
    builder = current("T.empty")
    parts = list(shape)
    if len(parts) > 1 and (isinstance(parts[-1], str) or isinstance(parts[0], (tuple, list))):
        if dtype is not None:
            raise TileTypeError("T.empty: two element types given")
        dtype = parts.pop()
    if len(parts) == 1 and isinstance(parts[0], (tuple, list)):
        parts = list(parts[0])
    if builder.kernel is not None:
        raise TileRuntimeError("T.empty inside `with T.Kernel(...)`", remedy="make outputs before the kernel")
    element = canonical("float32" if dtype is None else dtype)
    buffer = decl_buffer(shape_tuple(parts, "T.empty"), element.storage, builder.name("out"), span=builder.span())
    builder.facts["trace"].outputs.append(buffer)
    return buffer
