"""Kernels on a GPU in graphs, on several streams, launched while those before them run: the order of the stream is kept."""

import threading

import pytest

import tilelang
import tilelang.language as T
from tilelang.target.device import capability, device_count

from .programs import gemm, two_kernels

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device_count() or not torch.cuda.is_available(), reason="needs a GPU")]


def compiled(func, **options):
    return tilelang.compile(func, target="cuda", **options)


def step(n=1 << 16):
    """B = A * 3 + 1, in whole numbers that wrap: a chain of these tells every order but the right one."""

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
        with T.Kernel(T.ceildiv(n, 1024), threads=128) as bx:
            for i in T.Parallel(1024):
                B[bx * 1024 + i] = A[bx * 1024 + i] * 3 + 1

    return main


def meeting(blocks=8):
    """Every block adds what the others wrote before they met."""

    @T.prim_func
    def main(A: T.Tensor((blocks,), "int32"), B: T.Tensor((blocks,), "int32")):
        with T.Kernel(blocks, threads=32) as bx:
            for i in T.Parallel(1):
                A[bx + i] = A[bx + i] + 1
            T.sync_grid()
            for i in T.Parallel(1):
                B[bx + i] = A[blocks - 1 - bx - i] + B[bx + i]

    return main


def after_steps(a, count):
    for _ in range(count):
        a = a * 3 + 1
    return a


def chain(kernel, a, b, count):
    """An even number of steps from a to b and back."""
    for _ in range(count // 2):
        kernel(a, b)
        kernel(b, a)


def numbers(n=1 << 16, seed=0):
    return torch.randint(-1000, 1000, (n,), dtype=torch.int32, generator=torch.Generator().manual_seed(seed)).cuda()


@pytest.mark.parametrize("options", [{}, {"pass_configs": {"tl.disable_dependent_launch": True}}], ids=["dependent", "plain"])
def test_a_chain_of_launches(options):
    kernel = compiled(step(), **options)
    if capability(0) >= (9, 0):
        assert kernel.artifact.entry.program.kernels[0].dependent == (not options)
    a, b = numbers(), numbers(seed=1)
    expected = after_steps(a, 300)
    chain(kernel, a, b, 300)
    assert torch.equal(a, expected)


def test_launches_between_others():
    """Kernels of torch before and behind ours, which do not wait by themselves."""
    kernel = compiled(step())
    a, b = numbers(), numbers(seed=1)
    expected = a.clone()
    for _ in range(100):
        expected = (expected * 3 + 1) * 5 - 7
    for _ in range(100):
        kernel(a, b)
        torch.mul(b, 5, out=a)
        a.sub_(7)
    assert torch.equal(a, expected)


def test_a_copy_of_the_host_before_a_launch():
    kernel = compiled(step())
    b = torch.empty(1 << 16, dtype=torch.int32, device="cuda")
    for k in range(20):
        host = torch.full((1 << 16,), k, dtype=torch.int32).pin_memory()
        a = torch.empty_like(b)
        a.copy_(host, non_blocking=True)
        kernel(a, b)
        assert b.cpu().eq(3 * k + 1).all()


def test_a_graph():
    """Captured once, replayed with other values: a chain, a workspace, a product with tensor maps."""
    kernel, shared, product = compiled(step()), compiled(two_kernels()), compiled(gemm(dtype="float16", stages=2))
    a, b = numbers(), numbers(seed=1)
    x, y = torch.randn(200, device="cuda"), torch.empty(200, device="cuda")
    p, q = (torch.randn(128, 128, device="cuda").half() for _ in range(2))
    r = torch.empty(128, 128, device="cuda")
    calls = lambda: (chain(kernel, a, b, 10), shared(x, y), product(p, q, r))  # noqa: E731
    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    for seed in range(3):
        a.copy_(numbers(seed=seed))
        x.normal_()
        p.normal_()
        expected, copy = after_steps(a, 10), torch.empty_like(y)
        shared(x, copy)
        graph.replay()
        assert torch.equal(a, expected) and torch.equal(y, copy)
        torch.testing.assert_close(r, (p.double() @ q.double()).float(), rtol=1e-3, atol=1e-3)


def test_graphs_of_kernels_whose_blocks_meet():
    """Two graphs replayed at the same time."""
    kernel = compiled(meeting())
    pairs = [[torch.zeros(8, dtype=torch.int32, device="cuda") for _ in range(2)] for _ in range(2)]
    kernel(*pairs[0])
    pairs[0][0].zero_()
    pairs[0][1].zero_()
    graphs = [torch.cuda.CUDAGraph() for _ in pairs]
    for graph, pair in zip(graphs, pairs, strict=True):
        with torch.cuda.graph(graph):
            for _ in range(20):
                kernel(*pair)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in pairs]
    for _ in range(10):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for a, b in pairs:
        assert a.eq(200).all() and b.eq(200 * 201 // 2).all()


def test_streams_side_by_side():
    kernel, meet = compiled(step()), compiled(meeting())
    streams = [torch.cuda.Stream() for _ in range(4)]
    zeros = lambda: torch.zeros(8, dtype=torch.int32, device="cuda")  # noqa: E731
    work = [(numbers(seed=k), numbers(seed=9), zeros(), zeros()) for k in range(4)]
    expected = [after_steps(a, 100) for a, *_ in work]
    torch.cuda.synchronize()
    for _ in range(10):
        for stream, (a, b, c, d) in zip(streams, work, strict=True):
            with torch.cuda.stream(stream):
                chain(kernel, a, b, 10)
                meet(c, d)
    torch.cuda.synchronize()
    for (a, _, c, d), right in zip(work, expected, strict=True):
        assert torch.equal(a, right) and c.eq(10).all() and d.eq(55).all()


def test_threads_with_streams_of_their_own():
    kernel, wrong = compiled(step()), []

    def work(seed):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                a, b = numbers(seed=seed), numbers(seed=9)
                expected = after_steps(a, 200)
                chain(kernel, a, b, 200)
                if not torch.equal(a, expected):
                    wrong.append(seed)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(device_count() < 2, reason="needs two GPUs")
def test_the_device_of_the_tensors_counts():
    kernel = compiled(step())
    pairs = [[numbers(seed=k).to(f"cuda:{k}"), numbers(seed=9).to(f"cuda:{k}")] for k in range(2)]
    for a, b in pairs:
        expected = after_steps(a, 20)
        chain(kernel, a, b, 20)
        assert torch.equal(a, expected) and torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="expected a tensor on cuda:0"):
        kernel(pairs[0][0], pairs[1][1])
