"""The host part of a program as a function of TIR: checks, the host's own statements, one launch for each kernel region.

In: a `PrimFunc` with kernel regions, and the printed kernels. Out: a `PrimFunc` without any, which `host_code.py` compiles. docs/host.md
says what the function does and how the table looks that it takes as its first parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TileNotSupportedError
from ...ir.dialect import GLOBAL, KERNEL_CLUSTER, LOCAL, op_name
from ...ir.kernel import KernelRegion, match_kernel
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
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
    Op,
    PrimFunc,
    Stmt,
    StringImm,
    TensorLoad,
    Var,
    const,
    decl_buffer,
    dtype_of,
    is_buffer,
    load,
    location_of,
    seq,
    shape_of,
    static_shape,
    store,
    tirx,
)  # fmt: skip
from .bulk import MAP_TYPE, TensorMap
from .cpp_types import bytes_of
from .entry import OTHERWISE
from .map_encoding import AREA_WORDS, HELPER, MAP_ALIGNMENT, MAP_BYTES, distinct, encode, fill_area, has_no_map
from .program import KernelText

# The table: words before the kernels, devices it has room for, words of a kernel.
LAUNCH, STREAM, COOPERATIVE, ENCODE, HEAD = 0, 1, 2, 3, 4
DEVICES = 64
KERNEL_WORDS = 2
# What the function calls back (`launch.py`).
LOAD, FAILED, WORKSPACE = "tilelang.cuda.load", "tilelang.cuda.failed", "tilelang.cuda.workspace"
REFUSED, BARRIER = "tilelang.cuda.refused", "tilelang.cuda.barrier"
DEVICE = "tilelang_device"  # stands for the number of the tensors' device until MakePackedAPI has made a variable of it
_LAUNCH, _STREAM, _ADDRESS = "tilelang_launch", "tilelang_stream", "tilelang_address"
CUDA_DEVICE = 2  # DLPack's kDLCUDA
CONFIG_WORDS = 8  # CUlaunchConfig of cuda.h: 4-byte grid x y z, block x y z, shared bytes, padding, stream, attributes, their number
_MAX_GRID = (1 << 32) - 1

# What TIR cannot say: calls through addresses, and addresses of bfloat16 memory (TVM's passes refuse `reinterpret` there).
HELPERS = f"""define i32 @{_LAUNCH}(i64 %launch, ptr %config, i64 %function, ptr %parameters) alwaysinline nounwind {{
  %driver = inttoptr i64 %launch to ptr
  %kernel = inttoptr i64 %function to ptr
  %status = call i32 %driver(ptr %config, ptr %kernel, ptr %parameters, ptr null)
  ret i32 %status
}}
define i64 @{_STREAM}(i64 %get, i32 %type, i32 %device) alwaysinline nounwind {{
  %function = inttoptr i64 %get to ptr
  %stream = call ptr %function(i32 %type, i32 %device)
  %value = ptrtoint ptr %stream to i64
  ret i64 %value
}}
define i64 @{_ADDRESS}(ptr %pointer) alwaysinline nounwind {{
  %value = ptrtoint ptr %pointer to i64
  ret i64 %value
}}
"""


@dataclass(frozen=True)
class Slot:
    """The place of one kernel parameter in a frame: size and alignment in bytes, multiples of 8."""

    size: int = 8
    alignment: int = 8


def frame_offsets(slots: Sequence[Slot]) -> tuple[list[int], int]:
    """Word at which each parameter's value begins, counted from the first value, and the number of words."""
    offsets, end = [], 0
    for slot in slots:
        start = -(-end // slot.alignment) * slot.alignment
        offsets.append(start // 8)
        end = start + slot.size
    return offsets, end // 8


def table_words(kernels: int) -> int:
    return HEAD + DEVICES * 2 * kernels * KERNEL_WORDS


def kernel_word(device: Any, careful: Any, kernels: int, k: int = 0) -> Any:
    """Where the words of a kernel begin in the table."""
    return HEAD + ((device * 2 + careful) * kernels + k) * KERNEL_WORDS


def takes_tensors(func: PrimFunc) -> bool:
    """Does the program have a tensor whose device decides? Without one the function takes device and stream after the table."""
    return any(is_buffer(p) for p in func.params)


def host_function(func: PrimFunc, kernels: Sequence[KernelText], written: Collection[Var]) -> PrimFunc:
    """The function. written: tensors that the program writes, under every name. Raises TileNotSupportedError for statements that the host
    cannot do on device memory."""
    return HostFunction(func, kernels, written).make()


class HostFunction:
    """Makes the function of one program."""

    def __init__(self, func: PrimFunc, kernels: Sequence[KernelText], written: Collection[Var]) -> None:
        self.func, self.kernels, self.written = func, list(kernels), written
        self.address = Var("table", "int64")
        self.table = decl_buffer((table_words(len(kernels)),), "int64", "words")
        self.device, self.stream, self.careful = Var("device", "int32"), Var("stream", "int64"), Var("careful", "int32")
        self.row = Var("row", "int32")
        self.values = CONFIG_WORDS + -(-max((len(k.facts.parameters) for k in kernels), default=0) // 8) * 8  # frame: where values begin
        self.area = self.values + max((frame_offsets(_slots(k))[1] for k in kernels), default=0)  # frame: what encoding a tensor map reads
        self.maps = distinct([m for k in kernels for m in k.maps])
        self.frame = decl_buffer((self.area + (AREA_WORDS if self.maps else 1),), "int64", "frame", LOCAL)
        self.next_kernel = 0
        self.cells: set[Var] = set()  # variables of the host
        taken = {v for k in kernels for v in (*k.arguments, *(m.tensor for m in k.maps))}
        # Tensors that kernels take, and the variables of their addresses.
        self.addresses = {p: Var(f"{p.name}_address", "int64") for p in func.params if is_buffer(p) and p in taken}
        self.narrow: dict[Var, Var] = {}  # scalar parameters of 16-bit floats -> what the function takes for them

    def make(self) -> PrimFunc:
        params = [self._parameter(p) for p in self.func.params]
        tensors = takes_tensors(self.func)
        hidden = [self.address] if tensors else [self.address, self.device, self.stream]
        body = rewrite(self.func.body, {
            AttrStmt: self._attribute, AllocBuffer: self._alloc, BufferStore: self._store, TensorLoad: self._load, Evaluate: self._evaluate,
        })  # fmt: skip
        body = substitute(body, {old: tirx.Cast(dtype_of(old), new) for old, new in self.narrow.items()})
        text = AttrStmt(StringImm("launch"), "pragma_import_llvm", StringImm(HELPERS + HELPER), seq([*self._entry(tensors), body]))
        return PrimFunc([*hidden, *params], text, self.func.ret_type, self.func.attrs, self.func.span)

    def _parameter(self, param: Var) -> Var:
        if not is_buffer(param) and str(getattr(param.ty, "dtype", "")) in ("float16", "bfloat16"):
            self.narrow[param] = Var(param.name, "float32")
        return self.narrow.get(param, param)

    # ---------------------------------------------------------------- entry
    def _entry(self, tensors: bool) -> list[Stmt]:
        start: list[Stmt] = [DeclBuffer(self.table, data=tirx.reinterpret(self.table.data.ty, self.address))]
        if tensors:
            start.append(Bind(self.device, tirx.call_extern("int32", DEVICE)))
        inside = tirx.And(self.device >= _int32(0), self.device < _int32(DEVICES))
        start.append(AssertStmt(inside, StringImm("ValueError"), [StringImm(f"a device number of {DEVICES} and more")]))
        if not self.kernels:
            return start
        start += [Bind(address, _integer(p.data)) for p, address in self.addresses.items()]
        start += self._find_careful()
        if self.maps:
            start.append(IfThenElse(tirx.NE(self.careful, _int32(0)), tirx.Return(_int32(OTHERWISE)), None))
        start.append(Bind(self.row, kernel_word(self.device, self.careful, len(self.kernels))))
        missing = tirx.EQ(self._word(self.row), _int64(0))
        start.append(IfThenElse(missing, Evaluate(_packed("int32", LOAD, self.address, self.device, self.careful)), None))
        if tensors:
            start.append(Bind(self.stream, tirx.call_extern("int64", _STREAM, self._word(STREAM), _int32(CUDA_DEVICE), self.device)))
        return [*start, *self._make_frame(), self._set(4, self.stream)]

    def _make_frame(self) -> list[Stmt]:
        """The frame: words of the stack that begin at a multiple of 64 bytes, which the stack's own memory need not."""
        words, start = decl_buffer((_words_of(self.frame) + 7,), "int64", "memory", LOCAL), Var("frame_start", "int64")
        aligned = tirx.bitwise_and(_integer(tirx.address_of(load(words, [_int32(0)]))) + _int64(63), _int64(-64))
        return [_on_stack(words), Bind(start, aligned), DeclBuffer(self.frame, data=tirx.reinterpret(self.frame.data.ty, start))]

    def _find_careful(self) -> list[Stmt]:
        """Do the tensors that kernels take break what the fast text assumes: 16-byte alignment, no written memory under two names? The
        ranges of the written ones stand first in an array, and each is compared with those behind it."""
        tensors = sorted(self.addresses, key=lambda p: p not in self.written)
        count, written = len(tensors), sum(p in self.written for p in tensors)
        ranges = decl_buffer((max(2 * count, 1),), "int64", "ranges", LOCAL)
        found = decl_buffer((1,), "int64", "found", LOCAL)  # not 0: be careful
        i, j = Var("i", "int32"), Var("j", "int32")

        def note(value: Expr) -> Stmt:
            return store(found, tirx.bitwise_or(load(found, [_int32(0)]), value), [_int32(0)])

        stmts: list[Stmt] = [_on_stack(ranges), _on_stack(found), store(found, _int64(0), [_int32(0)])]
        for k, p in enumerate(tensors):
            address = self.addresses[p]
            stmts.append(note(tirx.bitwise_and(address, _int64(15))))
            stmts += [store(ranges, address, [_int32(2 * k)]), store(ranges, address + _byte_count(p), [_int32(2 * k + 1)])]
        stmts += [note(tirx.Cast("int64", test)) for test in self._without_map()]
        (start, end), (other, last) = ((load(ranges, [2 * n]), load(ranges, [2 * n + 1])) for n in (i, j))
        compare = note(tirx.Cast("int64", tirx.And(start < last, other < end)))
        inner = For(j, i + 1, _int32(count - 1) - i, ForKind.SERIAL, compare)
        stmts.append(For(i, 0, written, ForKind.SERIAL, inner))
        return [*stmts, Bind(self.careful, tirx.Cast("int32", tirx.NE(load(found, [_int32(0)]), _int64(0))))]

    def _without_map(self) -> list[Expr]:
        """Conditions, one of which holds for tensors that bulk copies cannot move. A workspace whose size is not known yet is one."""
        known: set[Var] = set()
        for p in self.func.params:
            walk([p, *p.ty.shape, *p.ty.strides] if is_buffer(p) else p, {Var: known.add})
        tests: list[Expr] = []
        for test in [test for found in self.maps for test in has_no_map(found)]:
            named: list[Var] = []
            walk(test, {Var: named.append})
            tests.append(test if known.issuperset(named) else const(True, "bool"))
        return tests

    # ---------------------------------------------------------------- statements
    def _attribute(self, node: Any, descend: Descend) -> Stmt:
        region = match_kernel(node)
        return descend.children(node) if region is None else self._launch(region, descend)

    def _launch(self, region: KernelRegion, descend: Descend) -> Stmt:
        k = self.next_kernel
        self.next_kernel += 1
        facts = self.kernels[k].facts
        extents = [_int64(e) if isinstance(e, int) else tirx.Cast("int64", descend(e)) for _, e in region.blocks]
        grid = [Var(f"grid_{axis}", "int64") for axis in "xyz"]
        binds = [Bind(var, extents[n] if n < len(extents) else _int64(1)) for n, var in enumerate(grid)]
        x, y, z = (tirx.Min(var, _int64(_MAX_GRID)) for var in grid)
        (bx, by, bz), (attribute, count) = facts.block, self._attributes(k)
        body: list[Stmt] = [
            *self._whole_clusters(region, grid),
            self._set(0, _pair(x, y)), self._set(1, _pair(z, _int64(bx))), self._set(2, _int64(by | bz << 32)),
            self._set(3, _int64(facts.shared)), self._set(5, attribute), self._set(6, count),
            *self._parameters(k),
        ]  # fmt: skip
        status = Var("status", "int32")
        config, parameters = self._pointer(0), self._pointer(CONFIG_WORDS)
        function = self._word(self.row + _int32(k * KERNEL_WORDS))
        body.append(Bind(status, tirx.call_extern("int32", _LAUNCH, self._word(LAUNCH), config, function, parameters)))
        told = [self.address, self.device, self.careful, _int32(k), status, _integer(config), _integer(parameters)]
        body.append(IfThenElse(tirx.NE(status, _int32(0)), Evaluate(_packed("int32", FAILED, *told)), None))
        some = [var > _int64(0) for var, extent in zip(grid, extents, strict=False) if not (isinstance(extent, IntImm) and int(extent) > 0)]
        launch = seq(body)
        for condition in reversed(some):
            launch = IfThenElse(condition, launch, None)
        return seq([*binds, launch])

    def _whole_clusters(self, region: KernelRegion, grid: Sequence[Var]) -> list[Stmt]:
        """Checks of extents that the call knows."""
        found: list[Stmt] = []
        for axis, ((_, extent), size) in enumerate(zip(region.blocks, region.annotations.get(KERNEL_CLUSTER, ()), strict=False)):
            if not isinstance(extent, int) and int(size) > 1:
                message = f"extent {axis} of the grid is no multiple of the {int(size)} blocks of a cluster"
                whole = tirx.EQ(tirx.truncmod(grid[axis], _int64(int(size))), _int64(0))
                found.append(AssertStmt(whole, StringImm("ValueError"), [StringImm(message)], region.span))
        return found

    def _attributes(self, k: int) -> tuple[Expr, Expr]:
        """The address of the launch attributes of a kernel, and their number."""
        facts = self.kernels[k].facts
        if facts.cooperative:
            return self._word(COOPERATIVE), _int64(1)
        if not facts.dependent:
            return _int64(0), _int64(0)
        attribute = self._word(self.row + _int32(k * KERNEL_WORDS + 1))  # 0 on a device that has no such launches
        return attribute, tirx.Cast("int64", tirx.NE(attribute, _int64(0)))

    def _parameters(self, k: int) -> list[Stmt]:
        """Stores of the values and of their addresses."""
        kernel = self.kernels[k]
        values: list[Any] = [*(self._value(v) for v in kernel.arguments), *kernel.maps]
        stores: list[Stmt] = []
        if kernel.facts.cooperative:
            values.append(Var("barrier", "int64"))
            told = [self.address, self.device, self.careful, _int32(k), self.stream]
            stores.append(Bind(values[-1], _packed("int64", BARRIER, *told)))
        for n, (value, offset) in enumerate(zip(values, frame_offsets(_slots(kernel))[0], strict=True)):
            if isinstance(value, TensorMap):
                stores += self._encode(k, value, self.values + offset)
            else:
                stores.append(self._set(self.values + offset, value))
            stores.append(self._set(CONFIG_WORDS + n, _integer(self._pointer(self.values + offset))))
        return stores

    def _encode(self, k: int, found: TensorMap, word: int) -> list[Stmt]:
        """Statements that write a tensor map to the frame from `word` on."""
        status = Var("status", "int32")
        call = encode(found, self._word(ENCODE), self._pointer(word), self._value(found.tensor), self._pointer(self.area))
        told = [self.address, _int32(k), _int32(self.kernels[k].maps.index(found)), status]
        return [
            *fill_area(found, lambda part, value: self._set(self.area + part, value)), Bind(status, call),
            IfThenElse(tirx.NE(status, _int32(0)), Evaluate(_packed("int32", REFUSED, *told)), None),
        ]  # fmt: skip

    def _value(self, var: Var) -> Expr:
        """A kernel argument as the word whose first bytes are its value (processors of hosts with GPUs are little-endian)."""
        if is_buffer(var):
            return self.addresses[var] if var in self.addresses else _integer(var.data)
        dtype = str(getattr(var.ty, "dtype", "handle"))
        if dtype == "handle":
            return _integer(var)
        if var in self.narrow:
            return _half_bits(self.narrow[var]) if dtype == "float16" else _bfloat_bits(self.narrow[var])
        if dtype.startswith("float"):
            if bytes_of(dtype) < 4:
                raise TileNotSupportedError(f"{var.name}: a scalar of {dtype} as argument of a kernel", remedy="pass it as float32")
            return tirx.reinterpret("int64", var) if dtype == "float64" else tirx.Cast("int64", tirx.reinterpret("int32", var))
        return tirx.Cast("int64", var)

    def _alloc(self, node: Any, descend: Descend) -> Stmt:
        buffer = node.buffer
        if buffer.scope() != GLOBAL:
            self.cells.add(buffer)
            return _on_stack(buffer)
        size: Expr = _int64(bytes_of(dtype_of(buffer)))
        for extent in shape_of(buffer):
            size = tirx.Mul(size, _int64(extent) if isinstance(extent, int) else tirx.Cast("int64", descend(extent)))
        place = Var(f"{buffer.name}_address", "int64")
        return seq([
            Bind(place, _packed("int64", WORKSPACE, self.address, self.device, size), node.span),
            DeclBuffer(buffer, data=tirx.reinterpret(buffer.data.ty, place)),
        ])  # fmt: skip

    def _store(self, node: Any, descend: Descend) -> Stmt:
        if node.buffer not in self.cells:
            raise _device_memory(node)
        return descend.children(node)

    def _load(self, node: Any, descend: Descend) -> Expr:
        if node.source not in self.cells:
            raise _device_memory(node)
        return descend.children(node)

    def _evaluate(self, node: Any, descend: Descend) -> Stmt:
        name = op_name(node.value) if isinstance(node.value, Call) else ""
        if name == "tl.hint" or isinstance(node.value, IntImm):
            return Evaluate(_int32(0))
        if name.startswith("tl."):
            raise TileNotSupportedError(f"{name} outside a kernel", at=location_of(node))
        return descend.children(node)

    # ---------------------------------------------------------------- words
    def _word(self, index: Any) -> Expr:
        return load(self.table, [_int32(index) if isinstance(index, int) else index])

    def _set(self, word: int, value: Expr) -> Stmt:
        return store(self.frame, value, [_int32(word)])

    def _pointer(self, word: int) -> Expr:
        return tirx.address_of(load(self.frame, [_int32(word)]))


def _on_stack(buffer: Var) -> Stmt:
    """An allocation on the stack: without the annotation TVM asks its pool for memory, also for a few words, and when the function raises
    an error the pool does not get it back."""
    return AllocBuffer(buffer, {"disable_lower_builtin": IntImm("bool", 1)})


def _words_of(buffer: Var) -> int:
    (words,) = static_shape(buffer)
    return words


def _slots(kernel: KernelText) -> list[Slot]:
    return [Slot(MAP_BYTES, MAP_ALIGNMENT) if p == MAP_TYPE else Slot() for p in kernel.facts.parameters]


def _device_memory(node: Any) -> Exception:
    return TileNotSupportedError(
        "an element of a tensor outside `with T.Kernel(...)`: its memory is on the device", at=location_of(node),
        remedy="read or write it in a kernel",
    )  # fmt: skip


# ---------------------------------------------------------------- expressions
def _int32(value: int) -> Expr:
    return const(value, "int32")


def _int64(value: int) -> Expr:
    return const(value, "int64")


def _integer(pointer: Expr) -> Expr:
    return tirx.call_extern("int64", _ADDRESS, pointer)


def _pair(low: Expr, high: Expr) -> Expr:
    """Two 32-bit numbers as one word."""
    return tirx.bitwise_or(low, tirx.shift_left(high, _int64(32)))


def _packed(dtype: str, name: str, *values: Expr) -> Expr:
    return Call(Op.get("tirx.tvm_call_packed"), [StringImm(name), *values], ret_ty=dtype)


def _byte_count(buffer: Var) -> Expr:
    """Bytes from the first element to the end of the last one; 0, or less, for a tensor without elements."""
    shape = [_int64(e) if isinstance(e, int) else tirx.Cast("int64", e) for e in shape_of(buffer)]
    count: Expr = _int64(1)
    if len(buffer.ty.strides):
        for extent, stride in zip(shape, buffer.ty.strides, strict=True):
            count = count + (extent - _int64(1)) * tirx.Cast("int64", stride)
    else:
        for extent in shape:
            count = count * extent
    return count * _int64(bytes_of(dtype_of(buffer)))


def _half_bits(value: Expr) -> Expr:
    return tirx.Cast("int64", tirx.reinterpret("uint16", tirx.Cast("float16", value)))


def _bfloat_bits(value: Expr) -> Expr:
    """The upper half of a float32, rounded to nearest, ties to even; a NaN stays one."""
    bits = tirx.Cast("int64", tirx.reinterpret("uint32", value))
    odd = tirx.bitwise_and(tirx.shift_right(bits, _int64(16)), _int64(1))
    rounded = tirx.shift_right(bits + _int64(0x7FFF) + odd, _int64(16))
    return tirx.Select(tirx.NE(value, value), _int64(0x7FC0), rounded)


def with_total_divisions(func: PrimFunc) -> PrimFunc:
    """The function with integer divisions that cannot end the process."""
    return func.with_body(rewrite(func.body, {(tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod): _total_division}))


def _total_division(node: Any, descend: Descend) -> Expr:
    """By zero it gives 0, by -1 it negates."""
    a, b = descend(node.a), descend(node.b)
    dtype, kind = dtype_of(node), type(node)
    if dtype.startswith(("float", "bfloat")) or (isinstance(b, IntImm) and int(b) not in (0, -1)):
        return kind(a, b)
    zero, one = const(0, dtype), const(1, dtype)
    special = tirx.EQ(b, zero) if dtype.startswith("uint") else tirx.Or(tirx.EQ(b, zero), tirx.EQ(b, const(-1, dtype)))
    quotient = kind(a, tirx.Select(special, one, b))
    is_modulo = kind in (tirx.FloorMod, tirx.Mod)
    if dtype.startswith("uint") or is_modulo:
        return tirx.Select(special, zero, quotient)
    return tirx.Select(special, tirx.Select(tirx.EQ(b, zero), zero, zero - a), quotient)
