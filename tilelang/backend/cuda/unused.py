"""Names that the text need not declare.

In: the body of a kernel region at THREADS level. Out: the variables of `Bind` statements whose values are pure and that nothing
reads but other such names: lowerings name what they may need, and simplification leaves some of it without use.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.dialect import op_name
from ...ir.rewrite import walk
from ...ir.tvm_api import Bind, Call, Stmt, Var


def unused_names(body: Stmt) -> set[Var]:
    """The variables whose `Bind` may be left out."""
    binds: list[Any] = []
    count: Counter[Var] = Counter()
    walk(body, {Bind: binds.append})
    walk(body, {Var: lambda v: count.update((v,))})
    inside = {bind.var: _variables(bind.value) for bind in binds}
    own = _variables_of_definitions(binds)
    waiting = [bind for bind in binds if _is_pure(bind.value)]
    found: set[Var] = set()
    while dead := [bind for bind in waiting if count[bind.var] <= own[bind.var]]:
        for bind in dead:
            found.add(bind.var)
            count.subtract(inside[bind.var])
        waiting = [bind for bind in waiting if bind.var not in found]
    return found


def _variables(value: Any) -> Counter[Var]:
    found: Counter[Var] = Counter()
    walk(value, {Var: lambda v: found.update((v,))})
    return found


def _variables_of_definitions(binds: list[Any]) -> Counter[Var]:
    """How often a walk meets each variable in its own definitions."""
    met: Counter[Var] = Counter()
    for bind in binds:
        met[bind.var] += _variables(bind)[bind.var] - _variables(bind.value)[bind.var]
    return met


def _is_pure(value: Any) -> bool:
    """Has it no effect, so that leaving it out changes nothing?"""
    effects: list[bool] = []
    walk(value, {Call: lambda call: effects.append(op_name(call).startswith(("tl.", "tirx.call_")))})
    return not any(effects)
