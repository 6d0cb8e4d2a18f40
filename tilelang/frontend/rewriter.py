"""Rewrites the body of a kernel function into calls on an `Activation`, which executes or records each step.

In: a `FunctionSource`. Out: `Program`: a code object `f(__tl, __env)` with the user's file name and line numbers, and
the tables its integer arguments point into. Names that the function assigns live in `__env`; other names stay Python's.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import Location, TileSyntaxError
from .liveness import NONE, Liveness, Names
from .source import FunctionSource

Node = TypeVar("Node", bound=ast.AST)
TRACER, ENV = "__tl", "__env"

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Pow: "**", ast.MatMult: "@",
}  # fmt: skip
_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
_COMPARE = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_REFUSED = {
    ast.Try: "try", ast.ClassDef: "class", ast.AsyncFunctionDef: "async def", ast.AsyncFor: "async for", ast.AsyncWith: "async with",
    ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Match: "match",
    ast.Yield: "yield", ast.YieldFrom: "yield from", ast.Await: "await",
}  # fmt: skip


@dataclass(frozen=True)
class Flow:
    """Facts of a statement with a body. assigned: names it may bind. survivors: those whose value is needed afterwards
    or by a later iteration. carried: names of a loop body whose value at the start of an iteration matters.
    targets: names bound by `for` or `with ... as`; unpacked: the target is a tuple, even of one name."""

    assigned: Names
    survivors: Names
    carried: Names
    targets: tuple[str, ...] = ()
    unpacked: bool = False


@dataclass
class Program:
    """A rewritten function. sites: positions; flows: facts of compound statements by site; nested: inner definitions."""

    name: str
    source: FunctionSource
    code: types.CodeType | None = None
    sites: list[Location] = field(default_factory=list)
    flows: dict[int, Flow] = field(default_factory=dict)
    nested: list[Program] = field(default_factory=list)
    parameters: ast.arguments | None = None
    returns_value: bool = False


def rewrite_function(source: FunctionSource, freevars: Sequence[str], dynamic: bool = False) -> Program:
    """The program of a function. freevars: names of its closure cells, which the code object keeps under the same names.
    dynamic: free names are looked up at run time (inner functions, unhygienic macros)."""
    node = source.node
    program = Program(node.name, source, parameters=node.args)
    body = _Rewriter(program, dynamic).function_body()
    inner = ast.FunctionDef(node.name, _arguments([TRACER, ENV]), body or [ast.Pass()], [], None)
    outer = ast.FunctionDef("__factory", _arguments(freevars), [inner, ast.Return(ast.Name(node.name, ast.Load()))], [], None)
    for made in (inner, outer):
        made.type_params = []  # type: ignore[attr-defined]  # a field of newer Pythons
    module = ast.fix_missing_locations(ast.copy_location(ast.Module([ast.copy_location(outer, node)], []), node))
    code = compile(module, source.file, "exec")
    program.code = _inner_code(_inner_code(code, "__factory"), node.name)
    return program


def _inner_code(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _arguments(names: Sequence[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])


def parameter_names(arguments: ast.arguments) -> list[str]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [a.arg for a in every if a is not None]


class _Rewriter(ast.NodeTransformer):
    """Expressions by `visit`, statements by `block`; positions go into the program's tables."""

    def __init__(self, program: Program, dynamic: bool) -> None:
        self.program = program
        self.node = program.source.node
        self.dynamic = dynamic
        self.hidden: list[Names] = []  # parameters of the lambdas and comprehensions around
        self.live = Liveness.of(self.node)
        self.names = self.live.assigned(self.node.body) | frozenset(parameter_names(self.node.args))
        self.temporaries = 0

    # ---------------------------------------------------------------- small makers
    def at(self, node: ast.AST) -> ast.Constant:
        return ast.Constant(self.site(node))

    def site(self, node: ast.AST) -> int:
        self.program.sites.append(self.program.source.location(node))
        return len(self.program.sites) - 1

    def tl(self, method: str, node: ast.AST, *args: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
        func = ast.Attribute(ast.Name(TRACER, ast.Load()), method, ast.Load())
        return ast.copy_location(ast.Call(func, list(args), list(keywords)), node)

    def do(self, method: str, node: ast.AST, *args: ast.expr) -> ast.stmt:
        return ast.copy_location(ast.Expr(self.tl(method, node, *args)), node)

    def temporary(self) -> str:
        self.temporaries += 1
        return f"__t{self.temporaries}"

    def refuse(self, node: ast.AST, what: str, remedy: str) -> TileSyntaxError:
        return TileSyntaxError(what, at=self.program.source.location(node), remedy=remedy)

    def later(self, node: ast.expr) -> ast.Lambda:
        return ast.copy_location(ast.Lambda(_arguments([]), self.visit(node)), node)

    def flow(self, node: ast.stmt, target: ast.expr | None = None) -> ast.Constant:
        """A site with the facts of a compound statement."""
        k = self.site(node)
        targets = _flat_names(target) if target is not None else []
        body = [*getattr(node, "body", ()), *getattr(node, "orelse", ())]
        names = self.live.assigned(body) | frozenset(targets)
        self.program.flows[k] = Flow(
            names,
            self.live.survivors(node),
            self.live.carried.get(node, NONE) & names,
            tuple(targets),
            isinstance(target, (ast.Tuple, ast.List)),
        )
        return ast.Constant(k)

    # ---------------------------------------------------------------- statements
    def function_body(self) -> list[ast.stmt]:
        return self.block(self.node.body)

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for node in body:
            if type(node) in _REFUSED:
                raise self.refuse(node, f"`{_REFUSED[type(node)]}` has no meaning in a kernel", "move it out of the kernel function")
            rewrite = getattr(self, f"do_{type(node).__name__}", None)
            if rewrite is None:
                raise self.refuse(node, f"a `{type(node).__name__}` statement has no meaning in a kernel", "move it out of the kernel")
            made = rewrite(node)
            if made:
                if not isinstance(node, (ast.Pass, ast.Break, ast.Continue)):
                    out.append(self.do("at", node, self.at(_heading(node))))
                out.extend(made)
        return out or [ast.Pass()]

    def do_Pass(self, node: ast.Pass) -> list[ast.stmt]:
        return []

    def do_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        if isinstance(node.value, ast.Constant):
            return []
        return [self.do("effect", node, self.visit(node.value))]

    def do_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        target = node.targets[0]
        if len(node.targets) == 1 and not isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(target, ast.Name):
                return [self.bind(target.id, self.named_value(node.value, target.id), _is_call(node.value), node)]
            return self.store(target, self.visit(node.value), False, node)
        held = self.temporary()
        names = [n for t in node.targets for n in _flat_names(t)]
        value, fresh = self.held_value(node, target, names)
        out: list[ast.stmt] = [ast.copy_location(ast.Assign([ast.Name(held, ast.Store())], value), node)]
        for one in node.targets:
            out += self.store(one, ast.Name(held, ast.Load()), fresh, node)
        return out

    def held_value(self, node: ast.Assign, target: ast.expr, names: list[str]) -> tuple[ast.expr, bool]:
        """The right side of an assignment to several targets, evaluated once before anything is stored."""
        given = node.value.elts if isinstance(node.value, ast.Tuple) else []
        slots = [t.id for t in target.elts if isinstance(t, ast.Name)] if isinstance(target, ast.Tuple) else []
        if slots and len(slots) == len(given) == len(target.elts):  # type: ignore[attr-defined]
            fresh: ast.expr = ast.Tuple([ast.Constant(_is_call(v)) for v in given], ast.Load())
            value: ast.expr = ast.Tuple([self.named_value(v, name) for v, name in zip(given, slots, strict=True)], ast.Load())
        else:
            value, fresh = self.visit(node.value), ast.Constant(_is_call(node.value))
        hints = ast.Tuple([ast.Constant(n) for n in names], ast.Load())
        return self.tl("hold", node, value, fresh, hints), True

    def named_value(self, value: ast.expr, name: str) -> ast.expr:
        """A value whose maker may want to know the name it gets (allocations)."""
        return self.make_call(value, name) if isinstance(value, ast.Call) else self.visit(value)

    def bind(self, name: str, value: ast.expr, fresh: bool, node: ast.AST) -> ast.stmt:
        return self.do("assign", node, ast.Constant(name), value, ast.Constant(fresh))

    def store(self, target: ast.expr, value: ast.expr, fresh: bool, node: ast.AST, method: str = "assign") -> list[ast.stmt]:
        """Assign `value` (an evaluated expression) to any target."""
        if isinstance(target, ast.Name):
            return [self.do(method, node, ast.Constant(target.id), value, ast.Constant(fresh))]
        if isinstance(target, ast.Subscript):
            return [self.do("setitem", node, self.visit(target.value), self.index(target.slice), value, self.at(target))]
        if isinstance(target, ast.Attribute):
            raise self.refuse(target, "assignment to an attribute inside a kernel", "use names, or allocate memory with T.alloc_…")
        if isinstance(target, ast.Starred):
            return self.store(target.value, value, fresh, node, method)
        assert isinstance(target, (ast.Tuple, ast.List))
        names = [self.temporary() for _ in target.elts]
        slots: list[ast.expr] = [
            ast.Starred(ast.Name(n, ast.Store()), ast.Store()) if isinstance(t, ast.Starred) else ast.Name(n, ast.Store())
            for n, t in zip(names, target.elts, strict=True)
        ]
        unpack = ast.Assign([ast.Tuple(slots, ast.Store())], self.tl("unpack", target, value, self.at(target)))
        out: list[ast.stmt] = [ast.copy_location(unpack, node)]
        for name, one in zip(names, target.elts, strict=True):
            out += self.store(one, ast.Name(name, ast.Load()), fresh, node, method)
        return out

    def do_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        op, value, k = ast.Constant(_BINARY[type(node.op)]), self.visit(node.value), self.at(node)
        if isinstance(node.target, ast.Name):
            return [self.do("augment_name", node, ast.Constant(node.target.id), op, value, k)]
        if isinstance(node.target, ast.Subscript):
            target = node.target
            return [self.do("augment_item", node, self.visit(target.value), self.index(target.slice), op, value, self.at(target))]
        raise self.refuse(node.target, "assignment to an attribute inside a kernel", "use names, or allocate memory with T.alloc_…")

    def do_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node.target, "an annotation on something that is not a name", "annotate names only")
        name = ast.Constant(node.target.id)
        if node.value is None:
            return [self.do("annotate", node, name, self.later(node.annotation), self.at(node.annotation))]
        value = self.named_value(node.value, node.target.id)
        typed = self.tl("annotated", node, value, self.later(node.annotation), self.at(node.value))
        return [self.bind(node.target.id, typed, _is_call(node.value), node)]

    def do_If(self, node: ast.If) -> list[ast.stmt]:
        branch = self.temporary()
        load = lambda: ast.Name(branch, ast.Load())  # noqa: E731
        step = lambda method: ast.copy_location(ast.Call(ast.Attribute(load(), method, ast.Load()), [], []), node.test)  # noqa: E731
        start = self.tl("if_", node.test, self.visit(node.test), self.flow(node), self.at(node.test))
        out: list[ast.stmt] = [
            ast.copy_location(ast.Assign([ast.Name(branch, ast.Store())], start), node.test),
            ast.copy_location(ast.If(step("then"), self.block(node.body), []), node.test),
        ]
        if node.orelse:
            out.append(ast.copy_location(ast.If(step("otherwise"), self.block(node.orelse), []), node.test))
        out.append(ast.copy_location(ast.Expr(step("close")), node.test))
        return out

    def do_For(self, node: ast.For) -> list[ast.stmt]:
        if node.orelse:
            raise self.refuse(node.orelse[0], "`else` on a loop has no meaning in a kernel", "use a flag variable")
        item = self.temporary()
        loop = self.tl("loop", node.iter, self.visit(node.iter), self.flow(node, node.target))
        body = [*self.store(node.target, ast.Name(item, ast.Load()), True, node.target, "rebind"), *self.block(node.body)]
        return [ast.copy_location(ast.For(ast.Name(item, ast.Store()), loop, body, []), node)]

    def do_While(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            raise self.refuse(node.orelse[0], "`else` on a loop has no meaning in a kernel", "use a flag variable")
        loop = self.tl("while_", node.test, self.later(node.test), self.flow(node), self.at(node.test))
        return [ast.copy_location(ast.For(ast.Name(self.temporary(), ast.Store()), loop, self.block(node.body), []), node)]

    def do_With(self, node: ast.With) -> list[ast.stmt]:
        item, rest = node.items[0], node.items[1:]
        inner = [ast.copy_location(ast.With(rest, node.body), node)] if rest else node.body
        if rest:
            self.live.after[inner[0]] = self.live.after[node]
        target = item.optional_vars
        manager, value = self.temporary(), self.temporary()
        opened = self.tl("context", item.context_expr, self.visit(item.context_expr), k := self.flow(node, target))
        body = self.store(target, ast.Name(value, ast.Load()), True, node, "rebind") if target is not None else []
        body += self.block(inner)
        return [
            ast.copy_location(ast.Assign([ast.Name(manager, ast.Store())], opened), item.context_expr),
            ast.copy_location(ast.With([ast.withitem(ast.Name(manager, ast.Load()), ast.Name(value, ast.Store()))], body), node),
            self.do("leave", node, ast.Name(manager, ast.Load()), k),
        ]

    def do_Return(self, node: ast.Return) -> list[ast.stmt]:
        self.program.returns_value = self.program.returns_value or node.value is not None
        value = self.visit(node.value) if node.value is not None else ast.Constant(None)
        return [ast.copy_location(ast.Return(self.tl("return_", node, value, self.at(node))), node)]

    def do_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        message = self.later(node.msg) if node.msg is not None else ast.Constant(None)
        return [self.do("assert_", node, self.visit(node.test), message, self.at(node))]

    def _jump(self, node: ast.stmt, method: str) -> list[ast.stmt]:
        made = ast.copy_location(type(node)(), node)
        return [self.do("at", node, self.at(node)), ast.copy_location(ast.If(self.tl(method, node, self.at(node)), [made], []), node)]

    def do_Break(self, node: ast.Break) -> list[ast.stmt]:
        return self._jump(node, "break_")

    def do_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return self._jump(node, "continue_")

    def do_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        return [self.generic_visit(node)]  # type: ignore[list-item]

    def do_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                raise self.refuse(target, "`del` of something that is not a name", "only names can be deleted in a kernel")
        return [self.do("delete", node, ast.Constant(n)) for t in node.targets for n in _flat_names(t)]

    def do_Import(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        names = [a.asname or a.name.split(".")[0] for a in node.names]
        return [node, *[self.do("rebind", node, ast.Constant(n), ast.Name(n, ast.Load()), ast.Constant(True)) for n in names]]

    do_ImportFrom = do_Import

    def do_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        source = FunctionSource(self.program.source.file, node, self.program.source.lines)
        self.program.nested.append(rewrite_function(source, (), dynamic=True))
        defaults = [self.visit(d) if d is not None else ast.Constant(None) for d in (*node.args.defaults, *node.args.kw_defaults)]
        index = ast.Constant(len(self.program.nested) - 1)
        value: ast.expr = self.tl("define", node, index, ast.Tuple(defaults, ast.Load()))
        for decorator in reversed(node.decorator_list):
            value = self.tl("call", decorator, self.visit(decorator), self.at(decorator), value)
        return [self.bind(node.name, value, True, node)]

    # ---------------------------------------------------------------- expressions
    def visit(self, node: ast.AST) -> ast.expr:
        if type(node) in _REFUSED:
            raise self.refuse(node, f"`{_REFUSED[type(node)]}` has no meaning in a kernel", "move it out of the kernel function")
        return super().visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Expressions without a rule of their own: a copy with rewritten children; the file's tree is shared and stays."""
        return super().generic_visit(_copy(node))

    def is_local(self, name: str) -> bool:
        return name in self.names and not any(name in h for h in self.hidden)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            return node
        if self.is_local(node.id):
            return ast.copy_location(ast.Subscript(ast.Name(ENV, ast.Load()), ast.Constant(node.id), ast.Load()), node)
        if self.dynamic and not any(node.id in h for h in self.hidden):
            return self.tl("free", node, ast.Constant(node.id))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.tl("attribute", node, self.visit(node.value), ast.Constant(node.attr), self.at(node))

    def index(self, node: ast.expr) -> ast.expr:
        """What stands between square brackets; slices become slice objects."""
        if isinstance(node, ast.Slice):
            parts = [self.visit(p) if p is not None else ast.Constant(None) for p in (node.lower, node.upper, node.step)]
            return self.tl("slice", node, *parts)
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple([self.index(e) for e in node.elts], ast.Load()), node)
        return self.visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.tl("getitem", node, self.visit(node.value), self.index(node.slice), self.at(node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return node
        return self.tl("binary", node, ast.Constant(_BINARY[type(node.op)]), self.visit(node.left), self.visit(node.right), self.at(node))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.operand, ast.Constant):
            return node
        return self.tl("unary", node, ast.Constant(_UNARY[type(node.op)]), self.visit(node.operand), self.at(node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        op = ast.Constant("and" if isinstance(node.op, ast.And) else "or")
        return self.tl("logical", node, op, self.at(node), self.visit(node.values[0]), *[self.later(v) for v in node.values[1:]])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        ops = [_COMPARE[type(op)] for op in node.ops]
        if len(ops) == 1:
            return self.tl("compare", node, ast.Constant(ops[0]), self.visit(node.left), self.visit(node.comparators[0]), self.at(node))
        rest = [self.later(c) for c in node.comparators]
        return self.tl("chain", node, ast.Tuple([ast.Constant(op) for op in ops], ast.Load()), self.at(node), self.visit(node.left), *rest)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return self.tl("ternary", node, self.visit(node.test), self.later(node.body), self.later(node.orelse), self.at(node))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        return self.tl("walrus", node, ast.Constant(node.target.id), self.named_value(node.value, node.target.id))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self.make_call(node, None)

    def make_call(self, node: ast.Call, name: str | None) -> ast.expr:
        args = [self.visit(a) for a in node.args]
        keywords = [ast.keyword(kw.arg, self.visit(kw.value)) for kw in node.keywords]
        if name is None:
            return self.tl("call", node, self.visit(node.func), self.at(node), *args, keywords=keywords)
        return self.tl("call_as", node, ast.Constant(name), self.visit(node.func), self.at(node), *args, keywords=keywords)

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        args = _copy(node.args)
        args.defaults = [self.visit(d) for d in node.args.defaults]
        args.kw_defaults = [self.visit(d) if d is not None else None for d in node.args.kw_defaults]
        self.hidden.append(frozenset(parameter_names(node.args)))
        body = self.visit(node.body)
        self.hidden.pop()
        return ast.copy_location(ast.Lambda(args, body), node)

    def visit_comprehension_expr(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> ast.expr:
        first = self.visit(node.generators[0].iter)
        self.hidden.append(frozenset(n for g in node.generators for n in _flat_names(g.target)))
        generators = [
            ast.comprehension(g.target, first if j == 0 else self.visit(g.iter), [self.visit(c) for c in g.ifs], 0)
            for j, g in enumerate(node.generators)
        ]
        values = [self.visit(node.key), self.visit(node.value)] if isinstance(node, ast.DictComp) else [self.visit(node.elt)]
        self.hidden.pop()
        return ast.copy_location(type(node)(*values, generators), node)  # type: ignore[call-arg]

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_expr


def _copy(node: Node) -> Node:
    """A node of its own with the same children."""
    fields = {name: list(value) if isinstance(value, list) else value for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call)


def _flat_names(target: ast.expr) -> list[str]:
    """Names of a target, in order."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Starred):
        return _flat_names(target.value)
    if isinstance(target, (ast.Tuple, ast.List)):
        return [n for e in target.elts for n in _flat_names(e)]
    return []


def _heading(node: ast.stmt) -> ast.AST:
    """The part of a statement that an error about it should underline."""
    if isinstance(node, (ast.If, ast.While)):
        return node.test
    if isinstance(node, ast.For):
        return node.iter
    if isinstance(node, ast.With):
        return node.items[0].context_expr
    return node
