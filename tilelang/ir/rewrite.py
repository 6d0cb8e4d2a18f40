"""The one rewriting engine: tables of small rules over TVM's structural traversal (runs in C++, dispatch by type).

`walk` looks, `rewrite` replaces, `substitute` swaps variables. No other module subclasses a visitor or mutator.
TVM's traversal keeps the spans of statements; a rule that builds a new statement passes `node.span` on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InternalError
from .tvm_api import POSTORDER, PREORDER, Expr, TensorLoad, Var, structural_map, structural_mutate, structural_walk, type_indices

Types = Any  # a node class or a tuple of node classes


class Descend:
    """Handed to a rewrite rule: `descend(child)` rewrites one child, `descend.children(node)` all of a node's."""

    __slots__ = ("_mutator",)

    def __init__(self, mutator: Any) -> None:
        self._mutator = mutator

    def __call__(self, node: Any) -> Any:
        return self._mutator.mutate(node)

    def children(self, node: Any) -> Any:
        return self._mutator.default_mutate(node)


def walk(root: Any, callbacks: Mapping[Types, Callable[[Any], None]], order: str = "pre") -> None:
    """Call the first callback whose type matches, on every node, parents first ("pre") or last ("post")."""
    raised: list[BaseException] = []

    def quiet(fn: Callable[[Any], None]) -> Callable[[Any], None]:
        def visit(node: Any) -> None:
            try:
                fn(node)
            except BaseException as err:
                raised.append(err)
                raise

        return visit

    entries = [(index, visit) for types, fn in callbacks.items() for visit in (quiet(fn),) for index in type_indices(types)]
    _with_own_exceptions(structural_walk, raised, root, entries, [], PREORDER if order == "pre" else POSTORDER)


def rewrite(root: Any, rules: Mapping[Types, Callable[[Any, Descend], Any]]) -> Any:
    """Rewrite by the first rule whose type matches; the rule owns the descent and returns the new node."""
    raised: list[BaseException] = []

    def checked(rule: Callable[[Any, Descend], Any]) -> Callable[[Any, Any], Any]:
        def apply(node: Any, mutator: Any) -> Any:
            try:
                result = rule(node, Descend(mutator))
            except BaseException as err:
                raised.append(err)
                raise
            if result is None:  # TVM accepts None here and dies later
                raised.append(InternalError(f"rule {getattr(rule, '__name__', rule)} returned None for {type(node).__name__}"))
                raise raised[-1]
            return result

        return apply

    entries = [(index, apply, False) for types, rule in rules.items() for apply in (checked(rule),) for index in type_indices(types)]
    return _with_own_exceptions(structural_mutate, raised, root, entries)


def _with_own_exceptions(traverse: Callable[..., Any], raised: list[BaseException], *operands: Any) -> Any:
    """Traverse. TVM turns an exception of a callback into one of its own classes; a callback that keeps the original in
    `raised` gets it raised again here."""
    try:
        return traverse(*operands)
    except Exception:
        if raised:
            raise raised[0] from None
        raise


def substitute(root: Any, mapping: Mapping[Var, Expr]) -> Any:
    """Replace variables everywhere, also inside types. Not capture-avoiding; a buffer must be replaced by one of the
    same rank and element type (nothing is re-checked)."""
    table = dict(mapping)
    if not table:
        return root
    (var,) = type_indices((Var,))
    return structural_map(root, [(var, lambda v: table.get(v, v))], [], POSTORDER)


def uses(root: Any, variable: Var) -> bool:
    """Does `variable` occur in `root`?"""
    found = False

    def visit(v: Var) -> None:
        nonlocal found
        found = found or v.same_as(variable)

    walk(root, {Var: visit})
    return found


def uses_memory(root: Any) -> bool:
    """Does `root` read a buffer?"""
    found = False

    def visit(_: Any) -> None:
        nonlocal found
        found = True

    walk(root, {TensorLoad: visit})
    return found
