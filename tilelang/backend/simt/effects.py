"""Calls with effects as Python text: atomics, barriers, shuffles, votes, asynchronous copies, printing, instructions.

In: calls of the dialect, the name of the mask. Out: `Value`s for calls that are values, lines for statements.
"""

from __future__ import annotations

from typing import Any

from ...errors import TileNotSupportedError
from ...ir.dialect import BARRIER, CLUSTER_BARRIER, SHARED_SCOPES, attr, op_name
from ...ir.dtype_table import info
from ...ir.tvm_api import Call, Expr, IntImm, TensorLoad, TensorRegion, Var, dtype_of, is_buffer, shape_of
from ..gpu.instr import INSTRUCTIONS
from ..gpu.wgmma import Matrix, product
from .scope import Place, Scope, Value

BARRIER_SCOPES = (BARRIER, CLUSTER_BARRIER)
_HINTS = {  # what the program writes: the operation
    "ptx_commit_group": "cp_async_commit", "ptx_wait_group": "cp_async_wait", "fence_proxy_async": "fence_proxy_async",
    "tma_store_arrive": "bulk_commit", "tma_store_wait": "bulk_wait", "warpgroup_arrive": "wgmma_fence",
    "warpgroup_commit_batch": "wgmma_commit", "warpgroup_wait": "wgmma_wait", "wait_wgmma": "wgmma_wait",
}  # fmt: skip
_NATIVE_SHUFFLES = {
    "tirx.tvm_warp_shuffle": "idx", "tirx.tvm_warp_shuffle_up": "up", "tirx.tvm_warp_shuffle_down": "down",
    "tirx.tvm_warp_shuffle_xor": "xor",
}  # fmt: skip


class Effects:
    """The compiler of calls. expressions is set by the owner (the two compile each other's operands)."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.expressions: Any = None
        self.blocks: list[str] = []  # texts of the block indices
        self.reducer: Any = None  # CommReducer of the surrounding reduce_scope
        self.threads: list[Var] = []
        self.by_warp = False
        self.bulk_loads = False  # does the kernel hold any, so that barriers count bytes?
        self.products = False  # does it hold any?

    # ---------------------------------------------------------------- values
    def value(self, node: Call, name: str, mask: str) -> Value:
        dtype = dtype_of(node)
        if name == "tl.shfl" or name in _NATIVE_SHUFFLES:
            return self._shuffle(node, name, mask)
        if name == "tl.vote":
            operand = self._text(node.args[0], mask) if node.args else "True"
            return Value(f"g.vote({str(attr(node, 'kind'))!r}, {operand}, {mask}, {self.scope.kind(dtype)})", dtype, False)
        if name == "tl.warp_reduce":
            value = self.expressions(node.args[0], mask)
            return Value(f"g.warp_reduce({str(attr(node, 'kind'))!r}, {self._lanes(value)}, {mask})", dtype, False)
        if name == "tl.block_vote":
            site = self.scope.site("T.syncthreads_" + str(attr(node, "kind")))
            if self.by_warp:
                ballot = self.scope.temp("ballot")
                self.scope.emit(f"{ballot} = g.cast_vote({str(attr(node, 'kind'))!r}, {self._text(node.args[0], mask)}, {mask}, {site})")
                self.scope.emit(f"if {ballot} and {ballot}.wait is not None: yield {ballot}.wait")
                return Value(f"g.lanes({ballot}.result if {ballot} else 0, np.int32)", dtype, False)
            return Value(f"g.block_vote({str(attr(node, 'kind'))!r}, {self._text(node.args[0], mask)}, {mask}, {site})", dtype, False)
        if name == "tl.atomic":
            return self._atomic(node, mask, True)
        if name == "tl.random":
            return Value(f"g.generator.draw({str(attr(node, 'what'))!r}, {self.scope.kind(dtype)}, {mask})", dtype, False)
        if name == "tirx.tvm_warp_activemask":
            return Value(f"g.vote('activemask', True, {mask}, {self.scope.kind(dtype)})", dtype, False)
        if name in ("tl.gpu_only", "tirx.call_extern", "tirx.call_pure_extern"):
            what = str(attr(node, "what", "") or "") or (f"the external function {node.args[0].value}" if node.args else name)
            raise TileNotSupportedError(f"{what} does not exist in the emulator", at=self.scope.at(), remedy='compile for target="cuda"')
        raise TileNotSupportedError(f"the emulator has no form of {name}", at=self.scope.at())

    def _text(self, node: Expr, mask: str) -> str:
        return self.expressions(node, mask).text

    def _lanes(self, value: Value) -> str:
        return f"g.lanes({value.text}, {self.scope.kind(value.dtype)})"

    def _shuffle(self, node: Call, name: str, mask: str) -> Value:
        if name == "tl.shfl":
            value, by, width, _ = node.args
            mode = str(attr(node, "mode"))
        else:
            _, value, by, width = node.args[:4]
            mode = _NATIVE_SHUFFLES[name]
        operand = self._lanes(self.expressions(value, mask))
        return Value(f"g.shuffle({mode!r}, {operand}, {self._text(by, mask)}, {self._text(width, mask)}, {mask})", dtype_of(node), False)

    def _atomic(self, node: Call, mask: str, wants: bool) -> Value:
        place, index = self.element(node.args[0], mask)
        kind, dtype = str(attr(node, "kind")), dtype_of(node.args[0].source)
        site = self.scope.site(f"atomic {kind}", node.args[0].source.name)
        values = [self._text(v, mask) for v in node.args[1:]] or [f"{self.scope.kind(dtype)}(0)"]
        calls = [
            f"g.atomic({kind!r}, {place.name}, {index.text if not k else f'({index.text} + {k})'}, {v}, {mask}, {site}, {wants})"
            for k, v in enumerate(values)
        ]
        return Value(calls[0] if len(calls) == 1 else f"np.stack([{', '.join(calls)}])", dtype_of(node), False)

    def element(self, region: Any, mask: str) -> tuple[Place, Value]:
        """Memory and first element of an operand."""
        place = self.scope.places[region.source]
        mins = [r.min for r in region.region] if isinstance(region, TensorRegion) else list(region.indices)
        return place, self.expressions.linear(place, mins, mask)

    # ---------------------------------------------------------------- statements
    def statement(self, node: Call, mask: str) -> None:
        """Emit the lines of a call whose value is not used."""
        name, emit = op_name(node), self.scope.emit
        short = name.removeprefix("tl.")
        method = getattr(self, f"_do_{short}", None) if name.startswith("tl.") else None
        if method is not None:
            method(node, mask)
        elif name == "tirx.tvm_thread_allreduce":
            self._all_reduce(node, mask)
        else:
            emit(self.expressions(node, mask).text)

    def _do_hint(self, node: Call, mask: str) -> None:
        """The program's own fences and groups of asynchronous copies; other hints do nothing."""
        meant = _HINTS.get(str(attr(node, "what")))
        if meant is not None:
            getattr(self, f"_do_{meant}")(node, mask)

    def _do_atomic(self, node: Call, mask: str) -> None:
        self.scope.emit(self._atomic(node, mask, str(attr(node, "kind")) == "load").text)

    def _do_sync_threads(self, node: Call, mask: str) -> None:
        operands = [self._text(a, mask) for a in node.args]
        self._wait(f"g.sync({mask}, {self.scope.site('T.sync_threads')}{''.join(', ' + o for o in operands)})")

    def _wait(self, text: str) -> None:
        name = self.scope.temp("w")
        self.scope.emit(f"{name} = {text}")
        self.scope.emit(f"if {name} is not None: yield {name}")

    def _do_sync_warp(self, node: Call, mask: str) -> None:
        self.scope.emit(f"g.sync_warp({mask}, {self.scope.site('T.sync_warp')})")

    def _do_sync_grid(self, node: Call, mask: str) -> None:
        self.scope.emit(f"g.sync({mask}, {self.scope.site('T.sync_grid')})  # all blocks of the grid are in the batch")

    def _do_cp_async(self, node: Call, mask: str) -> None:
        target, where = self.element(node.args[0], mask)
        source, start = self.element(node.args[1], mask)
        count = 1
        for extent in (int(r.extent) for r in node.args[0].region if isinstance(r.extent, IntImm)):
            count *= extent
        site = self.scope.site("asynchronous copy", node.args[0].source.name)
        inside = self._text(node.args[2], mask) if len(node.args) > 2 else "None"
        self.scope.emit(f"g.cp_async({target.name}, {where.text}, {source.name}, {start.text}, {count}, {inside}, {mask}, {site})")

    def _do_cp_async_commit(self, node: Call, mask: str) -> None:
        self.scope.emit(f"g.cp_async_commit({mask})")

    def _do_cp_async_wait(self, node: Call, mask: str) -> None:
        self.scope.emit(f"g.cp_async_wait({self._text(node.args[0], mask)}, {mask}, {self.scope.site('wait for copies')})")

    def _do_mbarrier_init(self, node: Call, mask: str) -> None:
        bar = node.args[0].source
        index = self._text(node.args[0].region[0].min, mask)
        self.scope.emit(f"g.mbarrier_init({bar.name!r}, {index}, {self._text(node.args[1], mask)}, {mask})")

    def _do_mbarrier_arrive(self, node: Call, mask: str) -> None:
        operands = [node.args[0].source.name.__repr__(), self._text(node.args[0].region[0].min, mask), mask, self.scope.site("arrive")]
        operands += [self._text(a, mask) for a in node.args[1:]]  # a rank in the cluster
        self.scope.emit(f"g.mbarrier_arrive({', '.join(operands)})")

    def _do_cluster_arrive(self, node: Call, mask: str) -> None:
        relaxed = bool(attr(node, "relaxed", False))
        self.scope.emit(f"g.cluster_arrive({relaxed}, {mask}, {self.scope.site('T.cluster_arrive')})")

    def _do_cluster_wait(self, node: Call, mask: str) -> None:
        self._wait(f"g.cluster_wait({mask}, {self.scope.site('T.cluster_wait')})")

    def share_barriers(self, mask: str) -> None:
        """Barriers of the cluster are initialised: their declaration ends with its barrier."""
        site = self.scope.site("barriers of the cluster")
        self.scope.emit(f"g.cluster_arrive(True, {mask}, {site})")
        self._wait(f"g.cluster_wait({mask}, {site})")

    def _do_mbarrier_wait(self, node: Call, mask: str) -> None:
        index = self._text(node.args[0].region[0].min, mask)
        parity = self._text(node.args[1], mask)
        self._wait(f"g.mbarrier_wait({node.args[0].source.name!r}, {index}, {parity}, {mask}, {self.scope.site('wait')})")

    def _do_mbarrier_expect_tx(self, node: Call, mask: str) -> None:
        name, index = node.args[0].source.name, self._text(node.args[0].region[0].min, mask)
        if self.bulk_loads:
            count = self._text(node.args[1], mask)
            self.scope.emit(f"g.mbarrier_expect({name!r}, {index}, {count}, {mask}, {self.scope.site('expected bytes')})")
        if attr(node, "arrive", False):
            self.scope.emit(f"g.mbarrier_arrive({name!r}, {index}, {mask}, {self.scope.site('arrive')})")

    # ---------------------------------------------------------------- bulk copies and warpgroup products
    def _box(self, region: Any, mask: str) -> str:
        place = self.scope.places[region.source]
        corner = [self._text(r.min, mask) for r in region.region]
        shape = [str(e) if isinstance(e, int) else self._text(e, mask) for e in shape_of(region.source)]
        strides = [str(s) if isinstance(s, int) else self._text(s, mask) for s in place.strides]
        extents = tuple(int(r.extent) for r in region.region)
        lists = ", ".join(f"[{', '.join(part)}]" for part in (shape, strides))
        return f"Box({place.name}, [{', '.join(corner)}], {extents}, {lists})"

    def _do_tma_load(self, node: Call, mask: str) -> None:
        target, start = self.element(node.args[0], mask)
        bar = f"({node.args[2].source.name!r}, {self._text(node.args[2].region[0].min, mask)})"
        site, swizzle = self.scope.site("a bulk load", node.args[0].source.name), int(attr(node, "swizzle", 0))
        box = self._box(node.args[1], mask)
        operands = ["g", target.name, start.text, box, bar, str(swizzle), mask, site, *(self._text(a, mask) for a in node.args[3:])]
        self.scope.emit(f"if {mask} is not False: g.bulk.load({', '.join(operands)})")

    def _do_tma_store(self, node: Call, mask: str) -> None:
        source, start = self.element(node.args[0], mask)
        site, swizzle = self.scope.site("a bulk store", node.args[0].source.name), int(attr(node, "swizzle", 0))
        box, add = self._box(node.args[1], mask), bool(attr(node, "add", False))
        self.scope.emit(f"if {mask} is not False: g.bulk.store(g, {source.name}, {start.text}, {box}, {swizzle}, {mask}, {site}, {add})")

    def _do_bulk_commit(self, node: Call, mask: str) -> None:
        if self.by_warp:
            self.scope.emit(f"g.bulk.commit(g, {mask})")

    def _do_bulk_wait(self, node: Call, mask: str) -> None:
        if self.by_warp:
            read = bool(attr(node, "read", False)) or (len(node.args) > 1 and bool(int(node.args[1])))
            self.scope.emit(f"g.bulk.wait(g, {self._text(node.args[0], mask)}, {read}, {mask}, {self.scope.site('wait for bulk stores')})")

    def _do_fence_proxy_async(self, node: Call, mask: str) -> None:
        self.scope.emit(f"g.fence_proxy({mask}, {self.scope.site('T.fence_proxy_async')})")

    def _do_wgmma(self, node: Call, mask: str) -> None:
        name = str(attr(node, "name"))
        record = product(name)
        if record is None:
            raise TileNotSupportedError(f"there is no instruction {name}", at=self.scope.at())
        matrices = None, attr(node, "a_matrix"), attr(node, "b_matrix")
        operands = [self._source(region, matrix, mask) for region, matrix in zip(node.args[:3], matrices, strict=True)]
        keep, site = self._text(node.args[3], mask), self.scope.site("a wgmma")
        self.scope.emit(f"g.products.issue({self.scope.object(record, 'product')}, {', '.join(operands)}, {keep}, {mask}, {site})")

    def _source(self, region: Any, matrix: Any, mask: str) -> str:
        place, start = self.element(region, mask)
        found = "None" if matrix is None else self.scope.object(Matrix.parse(str(matrix)), "matrix")
        return f"Source({place.name}, {start.text}, {found})"

    def _do_wgmma_fence(self, node: Call, mask: str) -> None:
        self._of_products("fence", mask, "")

    def _do_wgmma_commit(self, node: Call, mask: str) -> None:
        self._of_products("commit", mask, "")

    def _do_wgmma_wait(self, node: Call, mask: str) -> None:
        self._of_products("wait", mask, f"{self._text(node.args[0], mask)}, ")

    def _of_products(self, what: str, mask: str, operands: str) -> None:
        if self.products:
            self.scope.emit(f"g.products.{what}({operands}{mask}, {self.scope.site(f'the {what} of products')})")

    def _do_device_assert(self, node: Call, mask: str) -> None:
        message = str(attr(node, "message", "") or "")
        self.scope.emit(f"g.device_assert({self._text(node.args[0], mask)}, {message!r}, {mask}, {self.scope.site('T.device_assert')})")

    def _do_dp4a(self, node: Call, mask: str) -> None:
        (a, i), (b, j), (c, k) = (self.element(r, mask) for r in node.args)
        sites = [self.scope.site("T.dp4a", r.source.name) for r in node.args]
        terms = " + ".join(
            f"{a.name}.load(g, {i.text} + {q}, {mask}, {sites[0]}).astype(np.int32) * "
            f"{b.name}.load(g, {j.text} + {q}, {mask}, {sites[1]}).astype(np.int32)"
            for q in range(4)
        )
        self.scope.emit(f"{c.name}.store(g, {k.text}, {c.name}.load(g, {k.text}, {mask}, {sites[2]}) + ({terms}), {mask}, {sites[2]})")

    def _do_random(self, node: Call, mask: str) -> None:
        if str(attr(node, "what")) != "init":
            self.scope.emit(self.value(node, "tl.random", mask).text)
            return
        seed, drawn, *given = (self._text(a, mask) for a in node.args)
        sequence = given[0] if given else f"g.global_thread([{', '.join(self.blocks)}], grid)"
        self.scope.emit(f"g.generator.start({seed}, {sequence}, {drawn}, {mask})")

    def _do_instr(self, node: Call, mask: str) -> None:
        """A hardware instruction: the model of its record on the elements that the lanes name."""
        name = str(attr(node, "name"))
        if name not in INSTRUCTIONS:
            raise TileNotSupportedError(f"the emulator has no instruction {name}", at=self.scope.at())
        record = self.scope.object(INSTRUCTIONS[name], "instruction")
        operands = []
        for region in node.args:
            place, index = self.element(region, mask)
            operands.append(f"({place.name}, {index.text}, {self.scope.site(name, region.source.name)})")
        self.scope.emit(f"g.instruction({record}, [{', '.join(operands)}], {mask})")

    def _do_print(self, node: Call, mask: str) -> None:
        message = str(attr(node, "message", "") or "")
        blocks = f"[{', '.join(self.blocks[:3])}]"
        if not node.args:
            self.scope.emit(f"g.print_line({message!r}, '', '', None, 0, {mask}, False, {blocks})")
        elif not isinstance(node.args[0], TensorRegion):
            value = self.expressions(node.args[0], mask)
            self.scope.emit(f"g.print_line({message!r}, '', {value.dtype!r}, {value.text}, 0, {mask}, False, {blocks})")
        else:
            self._print_region(node, message, mask, blocks)

    def _print_region(self, node: Call, message: str, mask: str, blocks: str) -> None:
        """One line for each element. A second operand is the element's index in a tile whose elements lie in another order."""
        region: TensorRegion = node.args[0]
        buffer, emit = region.source, self.scope.emit
        place = self.scope.places[buffer]
        once = buffer.scope() in SHARED_SCOPES
        names, depth = [], self.scope.depth
        mins = [self.expressions(r.min, mask) for r in region.region]
        for r in region.region:
            name = self.scope.temp("p")
            emit(f"for {name} in range({self._text(r.extent, mask)}):")
            self.scope.depth += 1
            names.append(name)
        where = [f"({m.text} + {p})" for m, p in zip(mins, names, strict=True)]
        shape = [str(e) if isinstance(e, int) else self._text(e, mask) for e in shape_of(buffer)]
        flat = "0"
        for extent, w in zip(shape, where, strict=True):
            flat = f"({flat} * {extent} + {w})"
        site, dtype = self.scope.site("T.print", buffer.name), dtype_of(buffer)
        only = f"both({mask}, g.lane == 0)" if once else mask
        value = f"{place.name}.load(g, {flat}, {only}, {site})"
        shown = self._text(node.args[1], mask) if len(node.args) > 1 else flat
        emit(f"g.print_line({message!r}, {buffer.name!r}, {dtype!r}, {value}, {shown}, {only}, {once}, {blocks})")
        self.scope.depth = depth

    # ---------------------------------------------------------------- reductions over thread axes
    def _all_reduce(self, node: Call, mask: str) -> None:
        """tvm_thread_allreduce(1, value, condition, result, axes...)."""
        if self.by_warp:
            raise TileNotSupportedError("T.tvm_thread_allreduce beside mbarriers in the emulator", at=self.scope.at())
        value, condition, result = node.args[1], node.args[2], node.args[3]
        axes = [next(k for k, v in enumerate(self.threads) if v.same_as(a)) for a in node.args[4:]]
        reducer = self.reducer
        if reducer is None or not isinstance(result, TensorLoad):
            raise TileNotSupportedError("T.tvm_thread_allreduce outside of a reduce_scope", at=self.scope.at())
        x, y = reducer.lhs[0], reducer.rhs[0]
        dtype = dtype_of(x)
        names = [self.scope.temp("x"), self.scope.temp("y")]
        for var, name in zip((x, y), names, strict=True):
            self.scope.names[var] = Value(name, dtype, False)
        body = self.expressions(reducer.result[0], "None")
        start = self.expressions(reducer.identity_element[0], "None")
        site = self.scope.site("T.tvm_thread_allreduce", result.source.name)
        place, index = self.element(result, mask)
        operand = self._lanes(self.expressions(value, mask))
        call = (
            f"g.all_reduce({operand}, {self._text(condition, mask)}, {axes}, lambda {', '.join(names)}: {body.text}, "
            f"{self.scope.kind(start.dtype)}({start.text}), {mask}, {site})"
        )
        self.scope.emit(f"{place.name}.store(g, {index.text}, {call}, {mask}, {site})")


def is_barrier(buffer: Var) -> bool:
    return is_buffer(buffer) and buffer.scope() in BARRIER_SCOPES


def is_float(dtype: str) -> bool:
    return info(dtype).kind == "float"
