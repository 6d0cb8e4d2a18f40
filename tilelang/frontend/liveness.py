"""Which names a block of Python assigns, and which of them matter later: the data for the scalar rule.

In: the syntax tree of a function. Out: for every `if`, `for`, `while` and `with`, the names whose value must survive
it. Classical backward liveness; where Python's flow is not known (static or traced branch) it errs to "live".
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Names = frozenset[str]
NONE: Names = frozenset()


def _targets(node: ast.expr) -> Iterable[str]:
    """Names bound by an assignment target; subscripts and attributes bind none."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from _targets(element)
    elif isinstance(node, ast.Starred):
        yield from _targets(node.value)


def _binds(statement: ast.stmt, inner: Callable[[ast.stmt], Names]) -> Names:
    """Names that a statement may bind, not looking into nested functions (a walrus binds anywhere else). inner: the answer
    for statements inside."""
    found: set[str] = set()
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            found.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, (ast.Store, ast.Del)):
                found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((a.asname or a.name.split(".")[0]) for a in node.names)
        elif not isinstance(node, ast.Lambda):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    found |= inner(child)
                else:
                    stack.append(child)
    return frozenset(found)


def loads(*nodes: ast.AST | None) -> Names:
    """Names read anywhere in these expressions (names of inner scopes too: an over-estimate)."""
    return frozenset(
        n.id for node in nodes if node is not None for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


@dataclass
class _Loop:
    after: Names  # live where `break` goes
    head: Names  # live where `continue` goes


@dataclass
class Liveness:
    """after: names live after a statement. carried: names of a loop body whose value at its start matters."""

    after: dict[ast.stmt, Names] = field(default_factory=dict)
    carried: dict[ast.stmt, Names] = field(default_factory=dict)
    _loops: list[_Loop] = field(default_factory=list)
    _bound: dict[ast.stmt, Names] = field(default_factory=dict)

    @classmethod
    def of(cls, function: ast.FunctionDef) -> Liveness:
        result = cls()
        inner = [n for n in ast.walk(function) if isinstance(n, (ast.Lambda, ast.FunctionDef)) and n is not function]
        result._block(function.body, loads(*inner))  # a nested function may run at any later time
        return result

    def assigned(self, body: Iterable[ast.stmt]) -> Names:
        """Names that these statements may bind."""
        return NONE.union(*map(self._assigned, body))

    def _assigned(self, node: ast.stmt) -> Names:
        if node not in self._bound:
            self._bound[node] = _binds(node, self._assigned)
        return self._bound[node]

    def survivors(self, node: ast.stmt) -> Names:
        """Names assigned in the body of `node` whose value is needed by later iterations or statements."""
        body = [*getattr(node, "body", ()), *getattr(node, "orelse", ())]
        return self.assigned(body) & (self.after.get(node, NONE) | self.carried.get(node, NONE))

    def _block(self, body: Sequence[ast.stmt], out: Names) -> Names:
        for node in reversed(body):
            out = self._statement(node, out)
        return out

    def _statement(self, node: ast.stmt, out: Names) -> Names:
        match node:
            case ast.Assign():
                kept = [t for t in node.targets if not isinstance(t, ast.Name)]
                return (out - frozenset(n for t in node.targets for n in _targets(t))) | loads(node.value, *kept)
            case ast.AugAssign():
                return out | loads(node.value, node.target) | frozenset(_targets(node.target))
            case ast.AnnAssign() if node.value is not None:
                return (out - frozenset(_targets(node.target))) | loads(node.value, node.annotation, node.target)
            case ast.If():
                self.after[node] = out
                return loads(node.test) | self._block(node.body, out) | self._block(node.orelse, out)
            case ast.For() | ast.While():
                return self._loop(node, out)
            case ast.With():
                self.after[node] = out
                bound = frozenset(n for i in node.items if i.optional_vars is not None for n in _targets(i.optional_vars))
                return loads(*[i.context_expr for i in node.items]) | (self._block(node.body, out) - bound) | out
            case ast.Break() | ast.Continue() if self._loops:
                return self._loops[-1].after if isinstance(node, ast.Break) else self._loops[-1].head
            case ast.Return() | ast.Raise():
                return loads(node)
            case ast.FunctionDef():
                return (out - {node.name}) | loads(node)
            case _:
                return out | loads(node)

    def _loop(self, node: ast.For | ast.While, out: Names) -> Names:
        self.after[node] = out
        targets = frozenset(_targets(node.target)) if isinstance(node, ast.For) else NONE
        entry = NONE if isinstance(node, ast.For) else loads(node.test)
        head, inside = out | entry, NONE
        for _ in range(2):  # the second pass sees what the first found to be carried
            self._loops.append(_Loop(out, head))
            inside = self._block(node.body, head) - targets
            self._loops.pop()
            head = out | entry | inside
        self.carried[node] = inside | entry
        return head | (loads(node.iter) if isinstance(node, ast.For) else NONE)
