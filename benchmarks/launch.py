"""Time of a call of a small GPU kernel with three torch tensors, and of the parts that it consists of.

    python benchmarks/launch.py [--rounds 60] [--record]

Everything is in microseconds: median and minimum over batches of calls, with the device synchronised between batches and not inside one.
What is called native is a loop of machine code: no Python in it, no conversion of arguments. Needs a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from recording import machine, write

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import entry
from tilelang.backend.cuda.bulk import MAP_TYPE
from tilelang.backend.cuda.host import LAUNCH
from tilelang.backend.cuda.launch import Launcher
from tilelang.backend.llvm import machine_of, module_of_text
from tilelang.ir.tvm_api import ffi, ffi_function

BATCH = 200  # calls timed together: fewer than the driver's queue holds
# Loops over C functions whose arguments are pointers and numbers: `loop_K(count, function, argument, ... K of them)`.
_LOOP = """
define i32 @__tvm_ffi_loop_{n}(ptr %self, ptr %args, i32 %n, ptr %result) {{
entry:
  %count.at = getelementptr i8, ptr %args, i64 8
  %count = load i64, ptr %count.at
  %function.at = getelementptr i8, ptr %args, i64 24
  %function = load ptr, ptr %function.at
{loads}  br label %again
again:
  %k = phi i64 [0, %entry], [%next, %again]
  %status = call i32 %function({values})
  %next = add i64 %k, 1
  %done = icmp eq i64 %next, %count
  br i1 %done, label %end, label %again
end:
  %long = sext i32 %status to i64
  store i64 1, ptr %result
  %content = getelementptr i8, ptr %result, i64 8
  store i64 %long, ptr %content
  ret i32 0
}}
"""


def loop_text(n: int) -> str:
    loads = "".join(f"  %a{k}.at = getelementptr i8, ptr %args, i64 {16 * k + 40}\n  %a{k} = load i64, ptr %a{k}.at\n" for k in range(n))
    return _LOOP.format(n=n, loads=loads, values=", ".join(f"i64 %a{k}" for k in range(n)))


class Loops:
    """Calls C functions in loops of machine code."""

    def __init__(self, launcher: Launcher) -> None:
        self.module = module_of_text("".join(map(loop_text, (1, 2, 3, 4, 5, 11, 12))), machine_of(launcher.host.text))

    def call(self, function: int, *values: int, locked: bool = False) -> Callable[[int], None]:
        """A function that calls the C function `count` times; it raises if the last status is not 0. locked: Python's lock is held."""
        loop = self.module[f"loop_{len(values)}"]
        loop.release_gil = not locked

        def run(count: int) -> None:
            status = loop(count, function, *values)
            if status:
                raise RuntimeError(f"status {status}")

        return run


def repeat(call: Callable[..., Any], *args: Any) -> Callable[[int], None]:
    """A function that makes a call `count` times from Python."""

    def run(count: int) -> None:
        for _ in range(count):
            call(*args)

    return run


def kept(run: Callable[[int], None], *values: Any) -> Callable[[int], None]:
    """The function, which keeps the values that its addresses mean."""

    def holding(count: int, values: tuple[Any, ...] = values) -> None:
        run(count)

    return holding


def elementwise(dtype: str = "float32", n: int = 64):
    @T.prim_func
    def add(A: T.Tensor((n, n), dtype), B: T.Tensor((n, n), dtype), C: T.Tensor((n, n), dtype)):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(n, n):
                C[i, j] = A[i, j] + B[i, j]

    return add


def matmul(n: int = 128, dtype: str = "bfloat16"):
    """A product of one tile: its kernel takes tensor maps."""

    @T.prim_func
    def product(A: T.Tensor((n, n), dtype), B: T.Tensor((n, n), dtype), C: T.Tensor((n, n), dtype)):
        with T.Kernel(1, threads=128):
            a, b, c = T.alloc_shared((n, 64), dtype), T.alloc_shared((64, n), dtype), T.alloc_fragment((n, n), "float32")
            T.clear(c)
            for k in T.Pipelined(n // 64, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[0, 0])

    return product


class Bench:
    """Lines to measure. They take turns, so that what changes with time (clocks, other work) changes all of them."""

    def __init__(self, rounds: int, device: str) -> None:
        self.rounds, self.device = rounds, device
        self.lines: dict[str, Callable[[int], None]] = {}
        self.found: dict[str, dict[str, float]] = {}
        self.text: list[str] = []

    def line(self, name: str, run: Callable[[int], None]) -> None:
        self.lines[name] = run

    def measure(self) -> None:
        """All lines, printed at the end."""
        times: dict[str, list[float]] = {name: [] for name in self.lines}
        for k in range(self.rounds + 2):
            for name, run in self.lines.items():
                one = self._batch(run)
                if k >= 2:
                    times[name].append(one)
        for name, found in times.items():
            self.found[name] = {"median": statistics.median(found), "min": min(found)}
            self.text.append(f"{name:56s} median {statistics.median(found):7.3f}  min {min(found):7.3f}")
            print(self.text[-1], flush=True)

    def _batch(self, run: Callable[[int], None]) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run(BATCH)
        return (time.perf_counter() - start) / BATCH * 1e6


def lent(tensors: list[Any]) -> tuple[list[Any], Any]:
    """The tensors as values of TVM's FFI in memory of C, behind room for one more value: what keeps them, and the values."""
    exchange = entry.exchange(torch.Tensor)
    assert exchange is not None, "this torch publishes no C table"
    borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(exchange.borrow)
    places = (ctypes.c_int64 * (6 * len(tensors)))()
    values = (ctypes.c_int64 * (2 * (len(tensors) + 1)))()
    for k, tensor in enumerate(tensors):
        borrow(tensor, ctypes.addressof(places) + 48 * k)
        values[2 * k + 2], values[2 * k + 3] = 7, ctypes.addressof(places) + 48 * k  # kTVMFFIDLTensorPtr
    return [places, values, tensors], values


def driver_function(name: str) -> int:
    """The address of a function of the driver."""
    status, address, *_ = importlib.import_module("cuda.bindings.driver").cuGetProcAddress(name.encode(), 12000, 0)
    assert int(status) == 0, status
    return int(address)


def launches(bench: Bench, loops: Loops, launcher: Launcher, tensors: list[Any]) -> None:
    """The driver's two ways to launch a kernel, alone."""
    address = ctypes.addressof
    config = (ctypes.c_int64 * 8)(1 | 1 << 32, 1 | 128 << 32, 1 | 1 << 32, 0, 0, 0, 0, 0)  # CUlaunchConfig: one block of 128 threads
    values = (ctypes.c_int64 * 3)(*(t.data_ptr() for t in tensors))
    params = (ctypes.c_int64 * 3)(*(address(values) + 8 * k for k in range(3)))
    handle = launcher.words[launcher.kernel_word(0, False)]
    bench.line(
        "native: cuLaunchKernelEx", kept(loops.call(launcher.words[LAUNCH], address(config), handle, address(params), 0), values, config)
    )
    plain = loops.call(driver_function("cuLaunchKernel"), handle, 1, 1, 1, 128, 1, 1, 0, 0, address(params), 0)
    bench.line("native: cuLaunchKernel", kept(plain, values, params))
    if bench.device == "cuda":
        stream = torch.cuda.Stream()
        aside = loops.call(driver_function("cuLaunchKernel"), handle, 1, 1, 1, 128, 1, 1, 0, stream.cuda_stream, address(params), 0)
        bench.line("native: cuLaunchKernel on a stream of its own", kept(aside, values, params, stream))


def maps(bench: Bench, loops: Loops, tensor: Any) -> None:
    """One tensor map, as `map_encoding.py` asks for it."""
    numbers = (ctypes.c_int64 * 64)()
    map_at = ctypes.addressof(numbers) + -ctypes.addressof(numbers) % 64
    rows, columns = tensor.shape
    extents = (ctypes.c_int64 * 2)(columns, rows)
    strides = (ctypes.c_int64 * 1)(columns * tensor.element_size())
    box, steps = (ctypes.c_int32 * 2)(64, 64), (ctypes.c_int32 * 2)(1, 1)
    at = ctypes.addressof
    values = (
        map_at,
        1,
        2,
        tensor.data_ptr(),
        at(extents),
        at(strides),
        at(box),
        at(steps),
        0,
        3,
        2,
        0,
    )  # 16-bit elements, swizzle of 128 bytes
    encode = loops.call(driver_function("cuTensorMapEncodeTiled"), *values)
    bench.line("native: cuTensorMapEncodeTiled", kept(encode, numbers, extents, strides, box, steps, tensor))


def host_function(bench: Bench, loops: Loops, launcher: Launcher, tensors: list[Any], name: str) -> None:
    """The host function alone, its arguments converted once."""
    keep, values = lent(tensors)
    values[0], values[1] = 1, launcher.table  # kTVMFFIInt
    result = (ctypes.c_int64 * 2)()
    call = ffi_function("TVMFFIFunctionCall"), launcher.host.function.__chandle__(), ctypes.addressof(values), len(tensors) + 1
    bench.line(f"native: host function, {name}", kept(loops.call(*call, ctypes.addressof(result)), keep, result, launcher))


def conversions(bench: Bench, loops: Loops, tensor: Any) -> None:
    """What an argument costs."""
    exchange = entry.exchange(torch.Tensor)
    assert exchange is not None, "this torch publishes no C table"
    place, stream = (ctypes.c_int64 * 6)(), (ctypes.c_int64 * 1)()
    kind, index = (1, 0) if tensor.device.type == "cpu" else (2, tensor.device.index or 0)
    lend = loops.call(exchange.borrow, id(tensor), ctypes.addressof(place), locked=True)
    bench.line("native: a torch tensor lent through DLPack's C table", kept(lend, tensor, place))
    current = loops.call(exchange.current_stream, kind, index, ctypes.addressof(stream))
    bench.line("native: torch's current stream", kept(current, stream))
    bench.line("tvm_ffi.from_dlpack(a)", repeat(ffi.from_dlpack, tensor))
    bench.line("Tensor.is_neg(a)", repeat(torch.Tensor.is_neg, tensor))
    bench.line("a.requires_grad", repeat(getattr, tensor, "requires_grad"))
    bench.line("a function of Python without content", repeat(lambda *args, **named: None, tensor, tensor, tensor))


def calls(bench: Bench, device: str) -> tuple[Launcher, list[Any]]:
    """Calls of the element-wise kernel from Python, outermost first."""
    a, b, c = (torch.randn(64, 64, device=device) for _ in range(3))
    kernel = compiled(elementwise())
    for _ in range(3):
        kernel(a, b, c)
    launcher = kernel.artifact.entry
    bench.line("kernel(a, b, c)", repeat(kernel, a, b, c))
    whole = [torch.zeros(64, 64, device=device, dtype=torch.int32) for _ in range(3)]
    integers = compiled(elementwise("int32"))
    for _ in range(3):
        integers(*whole)
    bench.line("kernel(a, b, c), int32: no lazy negation to ask for", repeat(integers, *whole))
    bench.line("the launcher", repeat(launcher, a, b, c))
    bench.line("the host function through TVM's FFI", repeat(launcher.host.function, launcher.table, a, b, c))
    bench.line("torch.add(a, b, out=c)", repeat(lambda: torch.add(a, b, out=c)))
    bench.line("torch.empty_like(a)", repeat(torch.empty_like, a))
    returned = compiled(elementwise(), out_idx=[2])
    for _ in range(3):
        returned(a, b)
    bench.line("c = kernel(a, b)", repeat(returned, a, b))
    bench.line("torch.add(a, b)", repeat(torch.add, a, b))
    return launcher, [a, b, c]


def compiled(program: Any, **options: Any) -> Any:
    return tilelang.compile(program, target="cuda", **options)


def with_maps(bench: Bench, loops: Loops, device: str) -> None:
    """A kernel whose three tensors go through tensor maps."""
    tensors = [torch.randn(128, 128, device=device, dtype=torch.bfloat16) for _ in range(3)]
    kernel = compiled(matmul())
    for _ in range(3):
        kernel(*tensors)
    launcher = kernel.artifact.entry
    count = sum(MAP_TYPE in p for p in launcher.program.kernels[0].parameters)
    bench.line(f"kernel(a, b, c) with {count} tensor maps", repeat(kernel, *tensors))
    host_function(bench, loops, launcher, tensors, f"{count} tensor maps")
    maps(bench, loops, tensors[0])


def measure(bench: Bench, device: str) -> None:
    launcher, tensors = calls(bench, device)
    loops = Loops(launcher)
    host_function(bench, loops, launcher, tensors, "no tensor maps")
    launches(bench, loops, launcher, tensors)
    conversions(bench, loops, tensors[0])
    with_maps(bench, loops, device)
    bench.measure()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--record", action="store_true", help="keep the results in benchmarks/results/")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU here")
    about = {**machine(), "gpu": torch.cuda.get_device_name()}
    bench = Bench(options.rounds, "cuda")
    measure(bench, "cuda")
    if options.record:
        write("launch", about, bench.found, bench.text)


if __name__ == "__main__":
    main()
