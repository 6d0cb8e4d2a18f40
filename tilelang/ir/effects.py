"""Which operators a program calls, and which calls do something besides computing their value.

In: a call, an expression or a statement. Out: yes or no, or the calls. A call has an effect if evaluating it twice, or not at all,
could be noticed: it changes memory or the state of a generator, prints, or needs the other threads of its warp or block.
"""

from __future__ import annotations

import functools
from typing import Any

from .dialect import op_name
from .rewrite import walk
from .tvm_api import EFFECT_OPAQUE, Call, Expr, effect_of

_HINT = "tl.hint"


def calls_of(root: Any, *names: str) -> list[Call]:
    """The calls of these operators inside a statement or an expression, in the order of the program."""
    found: list[Call] = []
    walk(root, {Call: lambda call: found.append(call) if op_name(call) in names else None})
    return found


def has_effect(call: Call) -> bool:
    """Does evaluating this call change something outside of registers?"""
    return _named(op_name(call))


@functools.cache
def _named(name: str) -> bool:
    return not name or (name != _HINT and effect_of(name) == EFFECT_OPAQUE)


def effects_in(expr: Expr) -> list[Call]:
    """The calls with an effect inside an expression, operands before the calls that use them."""
    found: list[Call] = []

    def see(node: Any) -> None:
        if has_effect(node):
            found.append(node)

    walk(expr, {Call: see}, order="post")
    return found
