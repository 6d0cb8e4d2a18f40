"""Statements of one thread's program as C++ text.

In: the body of a kernel region at THREADS level. Out: indented lines, each of the user's lines announced by a comment. Loops marked
UNROLLED keep their pragma; VECTORIZED loops become accesses of up to 16 bytes where that is proven to be right (`vectors.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InternalError
from ...ir.access import view_roots
from ...ir.dialect import (
    ANNOTATION_ALLOC,
    ATTR_REDUCE_SCOPE,
    ATTR_WS,
    BARRIER,
    CLUSTER_BARRIER,
    KERNEL_CLUSTER,
    REGISTER_BUDGET,
    SHARED_SCOPES,
    THREAD_SCOPES,
    UNROLL_FACTOR,
    attr,
    op_name,
)
from ...ir.effects import calls_of
from ...ir.kernel import KernelRegion
from ...ir.rewrite import uses, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    dtype_of,
    is_buffer,
    location_of,
    shape_of,
    tirx,
)  # fmt: skip
from .addresses import LOOP, UNROLLED, rate
from .allreduce import print_allreduce
from .bulk import BULK_HINTS, TensorMaps
from .cpp_types import bytes_of, c_type, is_float, split
from .expressions import PRIMARY, UNARY, Expressions, lane_indices, quote
from .instructions import instruction_call
from .memory import Place, element_count, is_scalar_buffer
from .operators import Operators
from .printer import INDENT, Printer
from .unused import unused_names
from .vectors import vector_loop
from .wgmma import wgmma_rules

_UPDATES = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.Div: "/"}
_BARRIERS = (BARRIER, CLUSTER_BARRIER)


class Statements(Printer):
    """Prints statements into `lines`. `shared`: byte offset of each shared buffer in the block's allocation."""

    def __init__(self, expressions: Expressions, operators: Operators, kernel: KernelRegion, shared: Mapping[Var, int]) -> None:
        super().__init__(expressions, operators, kernel)
        self.shared, self.static_arrays = shared, bool(calls_of(kernel.body, "tirx.tvm_thread_allreduce"))
        self.unused = unused_names(kernel.body)
        self.viewed = set(view_roots(kernel.body).values())
        self._reducer: Any = None
        self.bulk = TensorMaps(self)
        self.declared: list[tuple[Any, str]] = []  # barriers that are not initialised yet, and their names
        self.dependent = False  # may the kernel begin before the one in front of it has ended? Then threads wait before they do anything
        self._rules: dict[type, Callable[[Any], None]] = {
            SeqStmt: self._seq, AllocBuffer: self._alloc, DeclBuffer: self._view, Bind: self._bind, BufferStore: self._store,
            Evaluate: self._evaluate, For: self._for, IfThenElse: self._if, While: self._while, AttrStmt: self._attr,
        }  # fmt: skip
        self._effects: dict[str, Callable[[Call], None]] = {
            "tl.hint": self._hint, "tl.sync_threads": self._sync, "tl.sync_warp": self._sync_warp, "tl.sync_grid": self._sync_grid,
            "tl.print": self._print, "tl.device_assert": self._assert, "tl.dp4a": self._dp4a, "tl.instr": self._instr,
            "tl.cp_async": self._cp_async, "tl.cp_async_commit": lambda c: self._async("cp_async_commit()"),
            "tl.cp_async_wait": lambda c: self._async(f"cp_async_wait<{int(c.args[0])}>()"), "tl.random": self._random_init,
            "tl.mbarrier_init": self._mbarrier_init, "tl.mbarrier_wait": self._mbarrier, "tl.mbarrier_arrive": self._mbarrier,
            "tl.cluster_arrive": lambda c: self._async(f"cluster_arrive{'_relaxed' if attr(c, 'relaxed', False) else ''}()"),
            "tl.cluster_wait": lambda c: self._async("cluster_wait()"),
            "tirx.break_loop": lambda c: self.line("break;"),
            "tirx.continue_loop": lambda c: self.line("continue;"),
            "tirx.tvm_thread_allreduce": lambda c: print_allreduce(self, c, self._reducer), **wgmma_rules(self), **self.bulk.rules(),
        }  # fmt: skip

    # ---------------------------------------------------------------- blocks
    def statement(self, stmt: Stmt) -> None:
        rule = self._rules.get(type(stmt))
        if rule is None:
            raise InternalError(f"no C++ for the statement {type(stmt).__name__}: {stmt}")
        if not isinstance(stmt, SeqStmt | AllocBuffer | DeclBuffer):
            self._begin()
        rule(stmt)

    def _begin(self) -> None:
        """Everything before this is the kernel's own: shared memory, barriers. The next kernel may begin, too; it waits in its turn."""
        self._start_barriers()
        if self.dependent:
            self.dependent = False
            self._async("launch_dependents()")
            self._async("wait_for_kernels_before()")

    def block(self, head: str, body: Stmt) -> None:
        """`head {` body `}`."""
        self.open(head)
        self.statement(body)
        self.close()

    def _seq(self, node: Any) -> None:
        stmts = list(node.seq)
        for k, stmt in enumerate(stmts):
            if k and self._is_first_value(stmts[k - 1], stmt):
                continue
            first = stmts[k + 1] if k + 1 < len(stmts) and self._is_first_value(stmt, stmts[k + 1]) else None
            if first is None:
                self.statement(stmt)
            else:
                self._variable(stmt, first)
        self._start_barriers()

    def _is_first_value(self, declaration: Stmt, stmt: Stmt) -> bool:
        """Does the statement give the variable declared just before it its first value?"""
        if not (isinstance(declaration, AllocBuffer) and isinstance(stmt, BufferStore) and stmt.buffer.same_as(declaration.buffer)):
            return False
        return is_scalar_buffer(declaration.buffer) and not uses(stmt.value, declaration.buffer)

    def _variable(self, declaration: Any, stmt: Any) -> None:
        """`type name = value;`"""
        self._begin()
        self.note(stmt)
        buffer, value = declaration.buffer, self.e.text(stmt.value)
        name = self.e.names.declare(buffer)
        self.line(f"{c_type(dtype_of(buffer))} {name} = {value};")
        self.e.places[buffer] = Place(name, dtype_of(buffer), buffer.scope(), scalar=True)

    # ---------------------------------------------------------------- declarations
    def _alloc(self, node: Any) -> None:
        buffer, scope = node.buffer, node.buffer.scope()
        self.note(node)
        name, dtype = self.e.names.declare(buffer), dtype_of(buffer)
        kind = c_type(dtype)
        if buffer in self.shared:
            at = f"smem + {self.shared[buffer]}" if self.shared[buffer] else "smem"
            self.line(f"{kind}* const {name} = reinterpret_cast<{kind}*>({at});")
            self.e.places[buffer] = Place(name, dtype, scope, aligned=self.shared[buffer] % 16 == 0)
            if scope in _BARRIERS and _arrive_counts(node):
                self.declared.append((node, name))
        elif is_scalar_buffer(buffer):
            self.line(f"{kind} {name};")
            self.e.places[buffer] = Place(name, dtype, scope, scalar=True)
        else:
            count = element_count(buffer)
            if scope not in THREAD_SCOPES or count is None:
                raise InternalError(f"{buffer.name} ({scope}) cannot be allocated by one thread")
            # Instructions and packs take elements of less than a register several at once, views any.
            align = "alignas(16) " if bytes_of(dtype) < 4 or buffer in self.viewed else ""
            self.line(f"{align}{kind} {name}[{count}];")
            self.e.places[buffer] = Place(name, dtype, scope)

    def _start_barriers(self) -> None:
        """The barriers declared since the last statement are initialised, for the block or for the cluster to use."""
        started, self.declared = self.declared, []
        if not started:
            return
        self.o.needs.add("async.cuh")
        clustered = KERNEL_CLUSTER in self.kernel.annotations and any(node.buffer.scope() == CLUSTER_BARRIER for node, _ in started)
        self.open(f"if ({self.linear_thread()} == 0)")
        for node, name in started:
            for k, count in enumerate(_arrive_counts(node)):
                self.line(f"tl::mbarrier_init(&{name}[{k}], {count});")
        self.bulk.barriers_started(clustered)
        self.close()
        for line in ("tl::cluster_arrive_relaxed();", "tl::cluster_wait();") if clustered else ("__syncthreads();",):
            self.line(line)

    def _view(self, node: Any) -> None:
        self.note(node)
        buffer = node.buffer
        data = self.e.text(node.data, UNARY)
        kind, name = c_type(dtype_of(buffer)), self.e.names.declare(buffer)
        self.line(f"{kind}* const {name} = ({kind}*){data};")
        owner = node.data.args[0] if op_name(node.data) == "tirx.buffer_data" else None
        aligned = owner is not None and self.e.place(owner).aligned
        self.e.places[buffer] = Place(name, dtype_of(buffer), buffer.scope(), aligned=aligned)

    def _bind(self, node: Any) -> None:
        if node.var in self.unused:
            return
        if isinstance(node.value, Var) and not is_buffer(node.value) and self.e.names.same(node.var, node.value):
            return  # the loop has this name
        self.note(node)
        dtype = getattr(node.var.ty, "dtype", None)
        kind = "void*" if dtype is None else c_type(str(dtype))
        if dtype is not None and str(dtype).startswith(("int", "uint")) and split(str(dtype))[1] == 1:
            # Its range and divisors, not its value: looking through chains of names costs without limit.
            self.e.facts.bind_summary(node.var, node.value)
            if self.e.is_data(node.value):
                self.e.data.add(node.var)
        self.e.rates[node.var] = rate(node.value, self.e.rates)
        value, name = self.e.text(node.value), self.e.names.declare(node.var)
        self.line(f"{'' if kind.endswith('*') else 'const '}{kind} {name} = {value};")

    # ---------------------------------------------------------------- stores
    def _store(self, node: Any) -> None:
        self.note(node)
        value_lanes, element_lanes = split(dtype_of(node.value))[1], split(dtype_of(node.buffer))[1]
        if value_lanes == element_lanes:
            self.line(f"{self._assignment(self.e.element(node.buffer, node.indices), node.value)};")
            return
        self._scatter(node, value_lanes // element_lanes)

    def _assignment(self, target: str, value: Expr) -> str:
        """`target = value`, or `target += rest`."""
        sign = _UPDATES.get(type(value)) if dtype_of(value) in ("float32", "float64") else None
        if sign and isinstance(value.a, TensorLoad) and self.e.text(value.a) == target:  # pyright: ignore[reportAttributeAccessIssue]
            return f"{target} {sign}= {self.e.text(value.b)}"  # pyright: ignore[reportAttributeAccessIssue]
        return f"{target} = {self.e.text(value)}"

    def _scatter(self, node: Any, lanes: int) -> None:
        """A vector value to several elements: one by one."""
        self.open()
        from_name = self.e.names.fresh("lanes")
        self.line(f"const {c_type(dtype_of(node.value))} {from_name} = {self.e.text(node.value)};")
        for k, indices in enumerate(lane_indices(node.indices, lanes)):
            self.line(f"{self.e.element(node.buffer, indices)} = {from_name}[{k}];")
        self.close()

    # ---------------------------------------------------------------- control
    def _for(self, node: Any) -> None:
        self.note(node)
        if node.kind == ForKind.PARALLEL:
            raise InternalError(f"a loop of the whole block is left in the program of one thread: {node}")
        if node.kind == ForKind.VECTORIZED and vector_loop(self, node):
            return
        var, kind = node.loop_var, c_type(str(node.loop_var.ty.dtype))
        unrolled = int(node.kind) in (int(ForKind.UNROLLED), int(ForKind.VECTORIZED))
        constant = unrolled and isinstance(node.extent, IntImm)
        self.e.facts.bind_range(var, node.min, node.extent)
        self.e.rates[var] = UNROLLED if constant else LOOP
        if isinstance(node.extent, IntImm) and int(node.extent) == 1 and isinstance(node.min, IntImm) and not _leaves_loop(node.body):
            self.e.names.alias(var, self.e.text(node.min))
            self.statement(node.body)
            return
        factor = (node.annotations or {}).get(UNROLL_FACTOR)
        if unrolled or factor is not None:
            self.line(f"#pragma unroll{'' if factor is None else f' {int(factor)}'}")
        low = self.e.text(node.min)
        end: Expr = _end(node)
        step = int(node.step) if isinstance(node.step, IntImm) else 1
        limit = self.e.text(end, 12)
        own = _own_name(node)
        self.e.names.enter()
        name = self.e.names.alias(var, self.e.names.fresh(str((var if own is None else own).name)))
        self.line(f"for ({kind} {name} = {low}; {name} < {limit}; {f'++{name}' if step == 1 else f'{name} += {step}'}) {{")
        self.depth += 1
        if own is not None:
            self.e.names.alias(own, name)
        self.statement(node.body)
        self.close()

    def _if(self, node: Any) -> None:
        self.note(node)
        self.open(f"if ({self.e.text(node.condition)})")
        with self.e.assuming(node.condition):
            self.statement(node.then_case)
        if node.else_case is not None:
            self.leave()
            self.open("} else")
            self.statement(node.else_case)
        self.close()

    def _while(self, node: Any) -> None:
        self.note(node)
        self.block(f"while ({self.e.text(node.condition)})", node.body)

    def _attr(self, node: Any) -> None:
        if node.attr_key == ATTR_WS:
            self.note(node)
            groups = [int(g) for g in node.node]
            thread = self.linear_thread()
            test = " || ".join(f"{thread} / 128 == {g}" for g in groups)
            outer = self.only_warpgroup  # not a fact about the variable: one value would be put in its place in other parts, too
            self.only_warpgroup = groups[0] if len(groups) == 1 else outer
            if len(groups) > 1:
                self.e.facts.bind_range(self.warpgroup, min(groups), max(groups) - min(groups) + 1)
            self.block(f"if ({test})", node.body)
            self.e.facts.bind_range(self.warpgroup, 0, self.kernel.num_threads)
            self.only_warpgroup = outer
        elif node.attr_key == ATTR_REDUCE_SCOPE:
            before, self._reducer = self._reducer, node.node
            self.statement(node.body)
            self._reducer = before
        else:
            self.statement(node.body)

    # ---------------------------------------------------------------- effects
    def _evaluate(self, node: Any) -> None:
        value = node.value
        if isinstance(value, IntImm):
            return
        self.note(node)
        rule = self._effects.get(op_name(value))
        if rule is not None:
            rule(value)
        else:
            self.line(f"{self.e.text(value)};")

    def _hint(self, call: Call) -> None:
        what = str(attr(call, "what"))
        if what in BULK_HINTS:
            self.bulk.hint(what)
        elif what == "ptx_commit_group":
            self._async("cp_async_commit()")
        elif what == "ptx_wait_group":
            left = call.args[0]  # the instruction takes a constant; waiting for more groups than asked is as right
            self._async(f"cp_async_wait<{int(left) if isinstance(left, IntImm) else 0}>()")
        elif what == REGISTER_BUDGET:
            self.o.needs.add("wgmma.cuh")
            self.line(f"tl::{'more' if int(call.args[1]) else 'fewer'}_registers<{int(call.args[0])}>();")
        elif what == "assume":
            self.line(f"__builtin_assume({self.e.text(call.args[0])});")

    def _async(self, text: str) -> None:
        self.o.needs.add("async.cuh")
        self.line(f"tl::{text};")

    def _sync(self, call: Call) -> None:
        if not call.args:
            self.line("__syncthreads();")
        else:
            self._async(f"named_barrier({', '.join(self.e.text(a) for a in call.args)})")

    def _sync_warp(self, call: Call) -> None:
        self.line(f"__syncwarp({', '.join(self.e.text(a) for a in call.args)});")

    def _sync_grid(self, call: Call) -> None:
        self.o.uses_grid_barrier = True
        self._async("sync_grid(grid_barrier)")

    def _cp_async(self, call: Call) -> None:
        to, source = call.args[0], call.args[1]
        count = 1
        for r in to.region:
            count *= int(r.extent)
        element = c_type(dtype_of(to))
        size = count * bytes_of(dtype_of(to))
        operands = ", ".join([self.o.region_address(to), self.o.region_address(source), *(self.e.text(a) for a in call.args[2:])])
        if not (self.e.place(to.source).aligned and self.e.place(source.source).aligned):
            self._async(f"copy_now<{element}, {count}>({operands})")
            return
        self._async(f"cp_async<{size}>({operands})")

    def _mbarrier_init(self, call: Call) -> None:
        self._async(f"mbarrier_init({self.o.region_address(call.args[0])}, {self.e.text(call.args[1])})")

    def _mbarrier(self, call: Call) -> None:
        what = op_name(call).removeprefix("tl.")
        self._async(f"{what}({', '.join([self.o.region_address(call.args[0]), *(self.e.text(a) for a in call.args[1:])])})")

    def _dp4a(self, call: Call) -> None:
        a, b, c = call.args
        target = self.o.region_element(c)
        self.line(f"{target} = tl::dp4a({self.o.region_address(a)}, {self.o.region_address(b)}, {target});")

    def _random_init(self, call: Call) -> None:
        self.o.needs.add("random.cuh")
        self.o.uses_random = True
        if str(attr(call, "what")) != "init":
            self.line(f"{self.e.text(call)};")
            return
        seed, skip, *sequence = call.args
        where = self.e.text(sequence[0]) if sequence else self._global_thread()
        self.line(f"rng.init({self.e.text(seed)}, {self.e.text(skip)}, {where});")

    def _global_thread(self) -> str:
        """The number of the thread in the grid."""
        block = "blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z)"
        return f"{self.linear_thread()} + {self.kernel.num_threads}ull * ({block})"

    def _instr(self, call: Call) -> None:
        self.line(instruction_call(call, self.o))

    # ---------------------------------------------------------------- printing
    def _print(self, call: Call) -> None:
        message = str(attr(call, "message", "") or "")
        prefix = f"msg='{message}' " if message else ""
        args = list(call.args)
        if not args:
            self._printf(prefix, "", [])
        elif isinstance(args[0], TensorRegion):
            self._print_region(call, prefix, args[0])
        else:
            form, value = _print_form(self.e.text(args[0]), dtype_of(args[0]))
            self._printf(prefix, f" dtype={dtype_of(args[0])} value={form}", [value])

    def _print_region(self, call: Call, prefix: str, region: TensorRegion) -> None:
        """Tiles of the block by one thread, other memory by each; every element with its flat index in the buffer."""
        buffer = region.source
        depth = self.depth
        if buffer.scope() in SHARED_SCOPES:
            chosen = 128 * int(attr(call, "warp_group_id", 0)) + 32 * int(attr(call, "warp_id", 0))
            self.line(f"if ({self.linear_thread()} == {chosen if chosen < self.kernel.num_threads else 0}) {{")
            self.depth += 1
        indices: list[Expr] = []
        for r in region.region:
            var = Var("p", "int32")
            name = self.e.names.of(var)
            self.line(f"for (int {name} = 0; {name} < {self.e.text(r.extent)}; ++{name}) {{")
            self.depth += 1
            indices.append(r.min + var)
        flat: Expr | None = None
        for extent, index in zip(shape_of(buffer), indices, strict=True):
            flat = index if flat is None else flat * extent + index
        form, value = _print_form(self.e.element(buffer, indices), dtype_of(buffer))
        if len(call.args) > 1:  # the element's index in a tile whose elements lie in another order
            flat = call.args[1]
        at = "0" if flat is None else self.e.text(flat, PRIMARY)
        self._printf(prefix, f" buffer={buffer.name}, index=%d dtype={dtype_of(buffer)} value={form}", [f"(int){at}", value])
        while self.depth > depth:
            self.depth -= 1
            self.line("}")

    def _printf(self, prefix: str, rest: str, values: Sequence[str]) -> None:
        text = quote(prefix.replace("%", "%%") + "block=(%d, %d, %d) thread=(%d, %d, %d)" + rest + "\n")
        place = ["(int)blockIdx.x", "(int)blockIdx.y", "(int)blockIdx.z", "(int)threadIdx.x", "(int)threadIdx.y", "(int)threadIdx.z"]
        self.line(f"printf({', '.join([text, *place, *values])});")

    def _assert(self, call: Call) -> None:
        message = str(attr(call, "message", "") or "device_assert failed")
        where = location_of(call)
        text = quote(f"{message}{f' ({where})' if where else ''}".replace("%", "%%") + ": block (%d, %d, %d), thread (%d, %d, %d)\n")
        self.line(f"if (!({self.e.text(call.args[0])})) {{")
        place = ", ".join(f"(int){v}Idx.{d}" for v in ("block", "thread") for d in "xyz")
        self.line(f"{INDENT}printf({text}, {place});")
        self.line(f"{INDENT}__trap();")
        self.line("}")


def _arrive_counts(node: AllocBuffer) -> list[int]:
    """Of the barriers of an array; none where the program initialises them itself."""
    return [int(c) for c in dict(dict(node.annotations or {}).get(ANNOTATION_ALLOC, {})).get("arrive_counts", [])]


def _own_name(loop: For) -> Var | None:
    """The name that the program itself gives a loop's variable, in the first statement of the body."""
    first = loop.body
    while isinstance(first, SeqStmt):
        first = first.seq[0]
    return first.var if isinstance(first, Bind) and isinstance(first.value, Var) and first.value.same_as(loop.loop_var) else None


def _leaves_loop(body: Stmt) -> bool:
    """Is there a `break` or `continue` in it?"""
    found: list[bool] = []
    walk(body, {Call: lambda call: found.append(op_name(call) in ("tirx.break_loop", "tirx.continue_loop"))})
    return any(found)


def _print_form(value: str, dtype: str) -> tuple[str, str]:
    """printf's conversion and its argument."""
    if dtype == "bool":
        return "%s", f'(({value}) ? "True" : "False")'
    if is_float(dtype):
        return "%g", f"(double)(float)({value})" if dtype != "float64" else value
    return ("%llu", f"(unsigned long long)({value})") if dtype.startswith("uint") else ("%lld", f"(long long)({value})")


def _end(node: Any) -> Expr:
    """Where a loop's variable stops."""
    if isinstance(node.min, IntImm) and int(node.min) == 0:
        return node.extent
    if isinstance(node.extent, tirx.Sub) and node.extent.b.same_as(node.min):
        return node.extent.a
    return node.min + node.extent
