"""Timing and checking of kernels. In: a callable and its inputs. Out: milliseconds, or an assertion.

On the CPU times come from the clock of the machine; with a CUDA device from events on the current torch stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import TileAssertionError, TileValueError
from .arrays import torch_module
from .compare import as_float64, torch_assert_close
from .params import KernelParam, TensorSupplyType
from .signature import evaluate
from .supply import get_tensor_supply

L2_FLUSH_BYTES = 256 << 20
_MODES: Mapping[str, Callable[[Any], float]] = {"mean": np.mean, "median": np.median, "min": np.min, "max": np.max}


def do_bench(
    fn: Callable[[], Any], warmup: float = 25, rep: float = 100, _n_warmup: int = 0, _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None, fast_flush: bool = True, backend: str = "event", return_mode: str = "mean",
    device: Any = None, grad_to_none: Any = None, **_ignored: Any,
) -> Any:  # fmt: skip
    """Milliseconds that `fn()` takes. warmup, rep: milliseconds to spend; _n_warmup, _n_repeat: counts that override them
    when positive. Result by return_mode (mean, median, min, max), or the list of `quantiles` (a float for a single one)."""
    if return_mode not in _MODES:
        raise TileValueError(f"do_bench: return_mode {return_mode!r}", remedy=f"one of {', '.join(_MODES)}")
    measure = _measure_cuda(device) if _on_cuda(device) else _measure_cpu
    fn()
    estimate = max(float(np.mean(measure(fn, 5, grad_to_none))), 1e-6)
    for _ in range(_n_warmup or max(1, int(warmup / estimate))):
        fn()
    times = measure(fn, _n_repeat or max(1, int(rep / estimate)), grad_to_none)
    if quantiles is not None:
        found = [float(q) for q in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return float(_MODES[return_mode](times))


def _on_cuda(device: Any) -> bool:
    torch = torch_module()
    if str(device or "").startswith("cpu") or torch is None:
        return False
    return bool(torch.cuda.is_available())


def _clear_grads(tensors: Any) -> None:
    for tensor in tensors or ():
        tensor.grad = None


def _measure_cpu(fn: Callable[[], Any], count: int, grad_to_none: Any) -> list[float]:
    times = []
    for _ in range(count):
        _clear_grads(grad_to_none)
        start = time.perf_counter()
        fn()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _measure_cuda(device: Any) -> Callable[[Callable[[], Any], int, Any], list[float]]:
    """Events around each run; the L2 cache is overwritten before it."""
    torch = torch_module()

    def measure(fn: Callable[[], Any], count: int, grad_to_none: Any) -> list[float]:
        flush = torch.empty(L2_FLUSH_BYTES // 4, dtype=torch.int32, device=device or "cuda")
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for start, end in events:
            _clear_grads(grad_to_none)
            flush.zero_()
            start.record()
            fn()
            end.record()
        torch.cuda.synchronize(device)
        return [start.elapsed_time(end) for start, end in events]

    return measure


class Profiler:
    """Runs a kernel on generated inputs. params: its parameters; result_idx: positions of its outputs."""

    def __init__(
        self, params: Sequence[KernelParam], result_idx: Any, supply_type: TensorSupplyType = TensorSupplyType.Auto, adapter: Any = None
    ):
        self.params = list(params)
        self.result_idx = [result_idx] if isinstance(result_idx, int) else list(result_idx or [])
        self.result_idx = [k + len(self.params) if k < 0 else k for k in self.result_idx]
        self.supply_type = supply_type
        self.adapter = adapter

    def _device(self) -> str:
        target = getattr(self.adapter, "target", None)
        return "cuda" if target is not None and target.kind == "cuda" else "cpu"

    def inputs(self, constraints: Mapping[str, int] | None = None) -> list[Any]:
        """Generated values for the parameters that are not outputs. constraints: values of symbolic extents by name."""
        supply = get_tensor_supply(self.supply_type, self._device())
        return [supply(_resolved(p, constraints)) for k, p in enumerate(self.params) if k not in self.result_idx]

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Run the kernel (or `func`) once on generated inputs and return its result."""
        return (func or self.adapter)(*self.inputs())

    def __call__(self, *args: Any) -> Any:
        return self.adapter(*args)

    def assert_allclose(
        self, reference_program: Callable[..., Any], input_tensors: Sequence[Any] | None = None, atol: float = 1e-2, rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01, **_ignored: Any,
    ) -> None:  # fmt: skip
        """Run the kernel and `reference_program` on the same inputs; AssertionError if the results differ."""
        inputs = list(input_tensors) if input_tensors is not None else self.inputs()
        expected = _listed(reference_program(*inputs))
        results = _listed(self.adapter(*inputs))
        if not results or len(results) != len(expected):
            raise TileAssertionError(
                f"the kernel returns {len(results)} outputs, the reference {len(expected)}",
                remedy="compile with out_idx naming the outputs, and let the reference return as many",
            )
        for k, (got, want) in enumerate(zip(results, expected, strict=True)):
            if want is not None:
                torch_assert_close(
                    got, want, rtol=rtol, atol=atol, max_mismatched_ratio=max_mismatched_ratio, check_dtype=False, check_device=False,
                    base_name=f"output {k}", ref_name="the reference",
                )  # fmt: skip

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[..., Any] | None = None,
    ) -> None:
        """Like `assert_allclose`; `manual_check_prog(results, expected)` makes the comparison."""
        if manual_check_prog is None:
            raise TileValueError("manual_assert_close without manual_check_prog", remedy="give a function of (results, expected)")
        inputs = list(input_tensors) if input_tensors is not None else self.inputs()
        expected = reference_program(*inputs)
        manual_check_prog(self.adapter(*inputs), expected)

    def assert_consistent(self, repeat: int = 10) -> None:
        """The same inputs give the same bits every time; AssertionError otherwise."""
        inputs = self.inputs()
        first = [as_float64(r) for r in _listed(self.adapter(*inputs))]
        for run in range(1, repeat):
            again = [as_float64(r) for r in _listed(self.adapter(*inputs))]
            for k, (a, b) in enumerate(zip(first, again, strict=True)):
                if not np.array_equal(a, b, equal_nan=True):
                    raise TileAssertionError(f"output {k} of run {run} differs from the first run in {int((a != b).sum())} elements")

    def do_bench(
        self, func: Callable[..., Any] | None = None, warmup: float = 25, rep: float = 100, n_warmup: int = 0, n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None, backend: str = "event", quantiles: Sequence[float] | None = None,
        return_mode: str = "mean", dynamic_symbolic_constraints: Mapping[str, int] | None = None, device: Any = None, **_ignored: Any,
    ) -> Any:  # fmt: skip
        """Milliseconds of the kernel, or of `func` on the same inputs. See `tilelang.profiler.do_bench`."""
        inputs = list(input_tensors) if input_tensors is not None else self.inputs(dynamic_symbolic_constraints)
        run = func or self.adapter
        return do_bench(
            lambda: run(*inputs), warmup=warmup, rep=rep, _n_warmup=n_warmup, _n_repeat=n_repeat, quantiles=quantiles, backend=backend,
            return_mode=return_mode, device=device or self._device(),
        )  # fmt: skip


def _resolved(param: KernelParam, constraints: Mapping[str, int] | None) -> KernelParam:
    """The parameter with symbols replaced by the given values."""
    if constraints is None:
        return param
    try:
        shape = tuple(evaluate(e, constraints) for e in param.shape)
    except KeyError as missing:
        raise TileValueError(f"{param.name}: no value for symbol {missing}", remedy="name it in dynamic_symbolic_constraints") from None
    return KernelParam(param.dtype, shape, param.name, param.kind)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple | list) else [value]
