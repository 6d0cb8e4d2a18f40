"""Speed on a CUDA device, side by side with torch (cuBLAS, cuDNN) in one process.

    python benchmarks/gpu.py [--record] [NAME ...]

Every kernel is checked against float64 (or a float32 torch reference on the device) before it is timed. Ours and theirs alternate;
inputs rotate over more memory than the L2 cache holds; the median of the rounds counts. `--record` writes
`benchmarks/results/gpu-<device>-<date>.json` and a readable `.txt`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import tilelang
import tilelang.language as T

RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS, L2_BYTES = 30, 64 << 20
LOG2_E = 1.4426950408889634
FAST = {"tl.enable_fast_math": True}  # as torch builds its attention kernels


@dataclass
class Row:
    """One measurement: milliseconds (medians), and what they mean."""

    name: str
    ours_ms: float
    theirs_ms: float
    theirs: str
    unit: str
    ours: float
    ratio: float  # theirs_ms / ours_ms: above 1 we are faster
    error: float


# Tile, stages and threads of a product by its size; found by trying on an H200.
TILES = {1024: ((64, 128, 64), 6, 128)}
TILE = ((128, 256, 64), 4, 256)


def gemm(M: int, N: int, K: int, dtype: str = "bfloat16", transposed: bool = True):
    """C = A B, or A times the transpose of B (transposed)."""
    (block_M, block_N, block_K), stages, threads = TILES.get(min(M, N), TILE)

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K) if transposed else (K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K) if transposed else (block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(8)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if transposed:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transposed)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def softmax(M: int, N: int, threads: int = 256):
    @T.prim_func
    def main(X: T.Tensor((M, N), "bfloat16"), Y: T.Tensor((M, N), "bfloat16")):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((1, N), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row : row + 1, 0:N], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = T.exp2(x[i, j] * LOG2_E - top[i] * LOG2_E)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(1):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(1, N):
                Y[row, j] = x[i, j] * total[i]

    return main


def normalise(M: int, N: int, centre: bool, threads: int = 256):
    """Layer normalisation (centre) or root-mean-square normalisation of rows, with a weight."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "bfloat16"), w: T.Tensor((N,), "bfloat16"), Y: T.Tensor((M, N), "bfloat16")):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((1, N), "float32")
            square = T.alloc_fragment((1, N), "float32")
            mean = T.alloc_fragment((1,), "float32")
            power = T.alloc_fragment((1,), "float32")
            T.copy(X[row : row + 1, 0:N], x)
            if centre:
                T.reduce_sum(x, mean, dim=1)
                for i, j in T.Parallel(1, N):
                    x[i, j] = x[i, j] - mean[i] / N
            for i, j in T.Parallel(1, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, power, dim=1)
            for i, j in T.Parallel(1, N):
                Y[row, j] = x[i, j] * T.rsqrt(power[i] / N + 1e-6) * w[j]

    return main


def attention(B: int, H: int, S: int, D: int, causal: bool, block: tuple[int, int] = (128, 128), stages: int = 2, threads: int = 256):
    block_M, block_N = block
    scale = LOG2_E / D**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), "bfloat16"), K: T.Tensor((B, H, S, D), "bfloat16"),
        V: T.Tensor((B, H, S, D), "bfloat16"), O: T.Tensor((B, H, S, D), "bfloat16"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=threads) as (number, by, bz):
            bx = T.ceildiv(S, block_M) - 1 - number if causal else number  # the longest rows first
            q = T.alloc_shared((block_M, D), "bfloat16")
            k = T.alloc_shared((block_N, D), "bfloat16")
            v = T.alloc_shared((block_N, D), "bfloat16")
            s = T.alloc_fragment((block_M, block_N), "float32")
            p = T.alloc_fragment((block_M, block_N), "bfloat16")
            o = T.alloc_fragment((block_M, D), "float32")
            m = T.alloc_fragment((block_M,), "float32")
            m_old = T.alloc_fragment((block_M,), "float32")
            alpha = T.alloc_fragment((block_M,), "float32")
            row = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, by, bx * block_M, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(m, -T.infinity("float32"))
            steps = T.ceildiv((bx + 1) * block_M, block_N) if causal else T.ceildiv(S, block_N)
            for n in T.Pipelined(steps, num_stages=stages):
                T.copy(K[bz, by, n * block_N, 0], k)
                if causal:
                    if (n + 1) * block_N > bx * block_M:
                        for i, j in T.Parallel(block_M, block_N):
                            s[i, j] = T.if_then_else(n * block_N + j <= bx * block_M + i, 0.0, -1e30)
                    else:
                        T.clear(s)
                else:
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[bz, by, n * block_N, 0], v)
                T.copy(m, m_old)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    alpha[i] = T.exp2(m_old[i] * scale - m[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, row, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * alpha[i] + row[i]
                for i, j in T.Parallel(block_M, D):
                    o[i, j] *= alpha[i]
                T.copy(s, p)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i in T.Parallel(block_M):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(block_M, D):
                o[i, j] *= total[i]
            T.copy(o, O[bz, by, bx * block_M, 0])

    return main


def timed(calls: list[Callable[[], Any]]) -> list[float]:
    """Median milliseconds of each call; the calls take turns."""
    for call in calls:
        call()
        call()
    torch.cuda.synchronize()
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            samples[k].append(start.elapsed_time(end))
    return [statistics.median(s) for s in samples]


def rotating(run: Callable[..., Any], sets: list[tuple[Any, ...]]) -> Callable[[], Any]:
    """A call that takes the next set of arguments each time."""
    state = [0]

    def call() -> Any:
        state[0] = (state[0] + 1) % len(sets)
        return run(*sets[state[0]])

    return call


def _sets(make: Callable[[], tuple[torch.Tensor, ...]]) -> list[tuple[torch.Tensor, ...]]:
    one = make()
    size = sum(t.numel() * t.element_size() for t in one)
    return [one, *(make() for _ in range(min(8, max(1, 2 * L2_BYTES // size))))]


def compare(
    name: str,
    program: Any,
    make: Callable[[], tuple[torch.Tensor, ...]],
    theirs: Callable[..., Any],
    label: str,
    reference: Callable[..., Any],
    work: float,
    unit: str,
    tolerance: float,
    config: dict[str, Any] | None = None,
) -> Row:
    """Check, then time. `make` gives inputs and one output, last; work: FLOP or bytes of one call; config: of the compiler's passes."""
    kernel = tilelang.compile(program, target="cuda", pass_configs=config)
    sets = _sets(make)
    *inputs, out = sets[0]
    out.fill_(float("nan"))
    kernel(*inputs, out)
    want = reference(*inputs).double()
    error = float(((out.double() - want).abs() / (want.abs() + want.abs().mean())).max())
    if not error <= tolerance:
        raise AssertionError(f"{name}: relative error {error} above {tolerance}")
    ours_ms, theirs_ms = timed([rotating(kernel, sets), rotating(theirs, [s[:-1] for s in sets])])
    return Row(name, ours_ms, theirs_ms, label, unit, work / ours_ms * 1e-9, theirs_ms / ours_ms, error)


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _gemm_row(n: int, dtype: str, transposed: bool) -> Row:
    kind = getattr(torch, dtype)

    def times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ (b.T if transposed else b)

    return compare(
        f"gemm {dtype} {n}^3 {'NT' if transposed else 'NN'}", gemm(n, n, n, dtype, transposed),
        lambda: tuple(bf16(n, n).to(kind) for _ in range(3)), times, "cuBLAS",
        lambda a, b: times(a.float(), b.float()), 2.0 * n**3, "TFLOP/s", 3e-2,
    )  # fmt: skip


def _rows_row(name: str, program: Any, weighted: bool, reference: Callable[..., Any], M: int, N: int) -> Row:
    """A pass over rows, against a plain copy of the matrix."""

    def make() -> tuple[torch.Tensor, ...]:
        return (bf16(M, N), bf16(N), bf16(M, N)) if weighted else (bf16(M, N), bf16(M, N))

    return compare(f"{name} {M}x{N} bf16", program, make, lambda x, *_: x.clone(), "copy", reference, 4.0 * M * N, "TB/s", 2e-2)


def _attention_row(B: int, H: int, S: int, D: int, causal: bool) -> Row:
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return compare(
        f"attention B{B} H{H} S{S} D{D} {'causal' if causal else 'full'} bf16", attention(B, H, S, D, causal),
        lambda: tuple(bf16(B, H, S, D) for _ in range(4)), lambda q, k, v: sdpa(q, k, v, is_causal=causal), "torch SDPA",
        lambda q, k, v: sdpa(q.float(), k.float(), v.float(), is_causal=causal),
        4.0 * B * H * S * S * D * (0.5 if causal else 1.0), "TFLOP/s", 5e-2, FAST,
    )  # fmt: skip


def rows() -> dict[str, Callable[[], Row]]:
    """Every measurement by name."""
    F, M, N = torch.nn.functional, 4096, 8192
    return {
        **{
            f"gemm {dtype} {n} {'NT' if transposed else 'NN'}": partial(_gemm_row, n, dtype, transposed)
            for n in (1024, 2048, 4096, 8192)
            for dtype, transposed in (("bfloat16", True), ("bfloat16", False), ("float16", True))
        },
        "softmax": partial(_rows_row, "softmax", softmax(M, N), False, lambda x: x.float().softmax(1), M, N),
        "layernorm": partial(
            _rows_row, "layernorm", normalise(M, N, True), True, lambda x, w: F.layer_norm(x.float(), (N,), w.float(), eps=1e-6), M, N
        ),
        "rmsnorm": partial(
            _rows_row, "rmsnorm", normalise(M, N, False), True, lambda x, w: F.rms_norm(x.float(), (N,), w.float(), eps=1e-6), M, N
        ),
        **{f"attention {'causal' if c else 'full'}": partial(_attention_row, 4, 16, 4096, 128, c) for c in (False, True)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines, measured = [], []
    for name, run in rows().items():
        if options.names and not any(n in name for n in options.names):
            continue
        try:
            row = run()
        except Exception as err:  # one kernel that fails must not cost the others their measurement
            print(f"{name}: {type(err).__name__}: {str(err)[:400]}", flush=True)
            continue
        measured.append(asdict(row))
        ours, theirs = f"{row.ours_ms:8.3f} ms {row.ours:8.2f} {row.unit:8}", f"{row.theirs:10} {row.theirs_ms:8.3f} ms"
        lines.append(f"{row.name:46} {ours} {theirs}  ratio {row.ratio:5.2f}")
        print(lines[-1], flush=True)
    device, today = torch.cuda.get_device_name(0), datetime.date.today().isoformat()
    if options.record:
        options.out.mkdir(parents=True, exist_ok=True)
        stem = f"gpu-{device.replace(' ', '_')}-{today}"
        head = {"device": device, "date": today, "torch": torch.__version__, "rounds": ROUNDS, "rows": measured}
        (options.out / f"{stem}.json").write_text(json.dumps(head, indent=1) + "\n")
        title = f"{device}, {today}, torch {torch.__version__}; medians of {ROUNDS} rounds, alternating"
        (options.out / f"{stem}.txt").write_text("\n".join([title, *lines]) + "\n")


if __name__ == "__main__":
    main()
