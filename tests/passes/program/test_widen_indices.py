"""Index arithmetic that 32 bits do not hold is exact; what they hold stays in 32 bits. No test allocates the tensors it names."""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda.memory import offset_of
from tilelang.compiler import compile as driver
from tilelang.errors import TileValueError
from tilelang.ir.annotations import LARGEST_SIZE
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import BufferStore, TensorLoad, Var, const, dtype_of, tirx
from tilelang.passes.analysis.index_ranges import IndexRanges
from tilelang.target.target import Target

LARGE = 3_000_000_000


def indices(program, target="cuda", stage="guard_bounds"):
    """Buffer name -> types of its indices, after a stage."""
    found = {}
    body = driver.lower_to(program, Target(target), None, stage).body

    def see(node):
        buffer = node.source if isinstance(node, TensorLoad) else node.buffer
        found.setdefault(buffer.name, set()).update(dtype_of(i) for i in node.indices)

    walk(body, {(TensorLoad, BufferStore): see})
    return found


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    """3e9 bytes of a file without content; ten of them are set."""
    try:
        made = np.memmap(tmp_path_factory.mktemp("large") / "zeros", dtype=np.int8, mode="w+", shape=(LARGE,))
    except OSError as error:
        pytest.skip(f"no sparse file of {LARGE} bytes: {error}")
    made[-10:] = np.arange(1, 11)
    yield made
    del made


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_elements_beyond_two_to_the_31(sparse, target):
    @T.prim_func
    def main(A: T.Tensor((LARGE,), "int8"), P: T.Tensor((2,), "int32"), O: T.Tensor((5, 10), "int32")):
        with T.Kernel(60000, threads=32) as block:
            tx = T.get_thread_binding()
            first = block * 50000 + 49990
            tile = T.alloc_shared((10,), "int8")
            if block == 59999:
                T.copy(A[block * 50000 + 49990], tile)
                if tx < 10:
                    O[0, tx] = A[block * 50000 + 49990 + tx]
                    O[1, tx] = A[first + tx]
                    O[2, tx] = tile[tx]
                    O[3, tx] = A[P[0] * 50000 + P[1] + tx]
                for i in T.serial(block * 50000 + 49990, block * 50000 + 50100):
                    O[4, i - first] = A[i]

    got = np.full((5, 10), -1, np.int32)
    tilelang.compile(main, target=target)(sparse, np.array([59999, 49990], np.int32), got)
    assert np.array_equal(got, np.tile(np.arange(1, 11), (5, 1)))


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_writes_land_where_they_belong(sparse, target):
    @T.prim_func
    def main(A: T.Tensor((LARGE,), "int8")):
        with T.Kernel(2, threads=32) as block:
            for i in T.Parallel(5):
                A[(block + 59998) * 50000 + i] = A[(block + 59998) * 50000 + i] + 1

    before = sparse[2999900000:2999900005].copy(), sparse[2999950000:2999950005].copy(), sparse[:70000].copy()
    tilelang.compile(main, target=target)(sparse)
    assert np.array_equal(sparse[2999900000:2999900005], before[0] + 1) and np.array_equal(sparse[2999950000:2999950005], before[1] + 1)
    assert np.array_equal(sparse[:70000], before[2])


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_a_product_of_symbols(sparse, target):
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "int8"), B: T.Tensor((m * n,), "int8"), O: T.Tensor((2, 10), "int32")):
        with T.Kernel(T.ceildiv(m * n, 1 << 27), threads=32) as block:
            tx = T.get_thread_binding()
            if block == T.ceildiv(m * n, 1 << 27) - 1 and tx < 10:
                O[0, tx] = B[(m - 1) * n + n - 10 + tx]
                O[1, tx] = A[m - 1, n - 10 + tx]

    got = np.full((2, 10), -1, np.int32)
    tilelang.compile(main, target=target)(sparse.reshape(60000, 50000), sparse, got)
    assert np.array_equal(got, np.tile(np.arange(1, 11), (2, 1)))


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_a_size_that_its_symbol_cannot_hold_is_refused(sparse, target):
    def program(dtype):
        n = T.dynamic("n", dtype)

        @T.prim_func
        def main(A: T.Tensor((n,), "int8"), O: T.Tensor((1,), "int32")):
            with T.Kernel(1):
                O[0] = A[n - 1]

        return tilelang.compile(main, target=target)

    narrow, wide, got = program("int32"), program("int64"), np.zeros(1, np.int32)
    for _ in range(2):  # the second call takes the short way
        narrow(np.arange(5, dtype=np.int8), got)
        assert got[0] == 4
        with pytest.raises(
            TileValueError, match=rf'A.shape\[0\] is {LARGE}.*32 bits: at most {LARGEST_SIZE}[\s\S]*T.dynamic\("n", "int64"\)'
        ):
            narrow(sparse, got)
    wide(sparse, got)
    assert got[0] == 10


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_rows_that_32_bits_cannot_count(tmp_path, target):
    """The length of a row, 2 n, is more than 2^31, though n is not."""
    n, length = T.dynamic("n"), 2_200_000_000

    @T.prim_func
    def main(A: T.Tensor((2, 2 * n), "int8"), O: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx < 3:
                O[tx] = A[1, tx]
                A[1, 2 * n - 3 + tx] = tx + 7
            if tx == 0:
                O[3] = A[1, n + n - 1]

    try:
        made = np.memmap(tmp_path / "rows", dtype=np.int8, mode="w+", shape=(2, length))
    except OSError as error:
        pytest.skip(f"no sparse file of {2 * length} bytes: {error}")
    made[1, :3], made[0, :3], made[1, -1] = (5, 6, 7), (1, 1, 1), 9
    got = np.zeros(4, np.int32)
    tilelang.compile(main, target=target)(made, got)
    assert got[:3].tolist() == [5, 6, 7] and got[3] in (7, 9) and made[1, -3:].tolist() == [7, 8, 9]
    rows = driver.lower_to(main, Target("cuda"), None, "relax_waits")
    accesses = []
    walk(rows.body, {TensorLoad: accesses.append})
    offset = next(offset_of(a.source, a.indices) for a in accesses if a.source.name == "A")
    assert dtype_of(offset) == "int64" and "n * 2" not in re.sub(r'T.Cast\("int64", n\)', "N", str(offset)), offset


def test_what_fits_stays_narrow():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int8"), B: T.Tensor((4096, 4096), "int8"), C: T.Tensor((LARGE,), "int8")):
        with T.Kernel(T.ceildiv(n, 1024), threads=128) as block:
            for i in T.Parallel(1024):
                A[block * 1024 + i] = B[(block * 1024 + i) // 4096, i]
                C[block * 1000 + i] = 1

    for target in ("cpu", "cuda"):
        assert all(types == {"int32"} for types in indices(main, target, "widen_indices").values())


def test_what_may_not_fit_is_wide():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((LARGE,), "int8"), B: T.Tensor((n,), "int8"), C: T.Tensor((10,), "int8"), k: T.int32):
        with T.Kernel(n, 60000, threads=128) as (bx, by):
            A[by * 50000 + 7] = 1
            B[by * 50000] = 1
            C[bx * n] = 1  # 65536 * 65536 is not 0
            C[k + 1] = 2
            C[k] = 3

    found = indices(main)
    assert found["A"] == found["B"] == {"int64"} and found["C"] == {"int32", "int64"}


def test_the_program_of_a_thread():
    @T.prim_func
    def main(A: T.Tensor((LARGE,), "int8")):
        with T.Kernel(60000, threads=32) as block:
            at = block * 50000
            if at < 2_900_000_000:
                A[at + T.get_thread_binding()] = 1

    text = driver.lower_to(main, Target("cuda"), None, "simplify_threads").script()
    assert re.search(r'A\[T.Cast\("int64", block\) \* T.int64\(50000\) \+', text)


def test_names_keep_their_value():
    """A name is an int32 that wraps; only where it chooses an element is it exact."""

    @T.prim_func
    def main(O: T.Tensor((2,), "int32"), C: T.Tensor((10,), "int32")):
        with T.Kernel(60000, threads=32) as block:
            at = block * 100000
            if block == 59999 and T.get_thread_binding() == 0:
                O[0] = at
                O[1] = C[at // 1000000000]

    for target in ("cpu", "simt"):
        got = np.zeros(2, np.int32)
        tilelang.compile(main, target=target)(got, np.arange(10, dtype=np.int32))
        assert got.tolist() == [int(np.array(59999 * 100000).astype(np.int32)), 5]


def test_a_grid_of_more_blocks_than_there_can_be():
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((m,), "int8"), B: T.Tensor((n,), "int8")):
        with T.Kernel(m * n) as block:
            A[block // n] = 1

    kernel = tilelang.compile(main, target="cpu")
    with pytest.raises(Exception, match=r"grid extent m \* n is more than 2\^31 - 1"):
        kernel(np.zeros(50000, np.int8), np.zeros(50000, np.int8))
    a = np.zeros(5, np.int8)
    kernel(a, np.zeros(3, np.int8))
    assert a.tolist() == [1] * 5


LEAST, MOST = -(1 << 31), (1 << 31) - 1


@pytest.mark.parametrize("known", ["parameters", "memory"])
@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_loops_between_any_two_values(target, known):
    """A loop whose end lies before its begin has no turn, however far they are apart."""

    @T.macro
    def count(a, b, O):
        if T.get_thread_binding() == 0:
            for k in T.serial(5):
                O[k] = 0
            for _i in T.serial(a, b):
                O[0] += 1
            for _i in T.serial(b, a, -1):
                O[1] += 1
            for _i in T.serial(a, b, 3):
                O[2] += 1
            for _i in T.serial(b, a, -2):
                O[3] += 1
            for _i in T.serial(b - a - 2):
                O[4] += 1

    @T.prim_func
    def parameters(a: T.int32, b: T.int32, O: T.Tensor((5,), "int32")):
        with T.Kernel(1, threads=32):
            count(a, b, O)

    @T.prim_func
    def memory(X: T.Tensor((2,), "int32"), O: T.Tensor((5,), "int32")):
        with T.Kernel(1, threads=32):
            count(X[0], X[1], O)

    kernel = tilelang.compile(parameters if known == "parameters" else memory, target=target)
    for a, b in ((MOST, LEAST), (MOST - 2, LEAST + 2), (5, 2), (2, 9), (LEAST, LEAST + 4), (MOST - 4, MOST), (7, 7)):
        got = np.full(5, -1, np.int32)
        kernel(*((a, b) if known == "parameters" else (np.array([a, b], np.int32),)), got)
        trips = [len(range(a, b)), len(range(b, a, -1)), len(range(a, b, 3)), len(range(b, a, -2)), len(range(b - a - 2))]
        checked = 5 if abs(b - a) < 1 << 30 else 4  # b - a alone is a value, and wraps
        assert got[:checked].tolist() == trips[:checked], (a, b)


RANGES = {"i": (0, 59999), "j": (-3, 50000), "n": (1, LARGEST_SIZE)}


@pytest.mark.parametrize(
    ("text", "wraps"),
    [
        ("i * 30000 + j", False), ("i * 50000 + j", True), ("(i * 50000 + j) // 4", True), ("i % 7 * 300000000", False),
        ("n + 1000000", False), ("n * 2", True), ("i // 100 * 50000", False), ("(i >> 4) << 16", False), ("i << 16", True),
        ("(i & 255) * 8000000", False), ("i - j * 50000", True), ("n // i * j", True), ("0 - n - n", True), ("j % n", False),
    ],
)  # fmt: skip
def test_ranges(text, wraps):
    ranges = IndexRanges()
    names = {name: Var(name, "int32") for name in RANGES}
    ranges.known.update({names[name]: found for name, found in RANGES.items()})
    expr = eval(text.replace("//", "@"), {}, {k: _Python(v) for k, v in names.items()}).expr
    found = ranges.judge(expr)
    assert found.wraps == wraps and not found.data
    low, high = found.interval
    rng = np.random.default_rng(0)
    for _ in range(300):
        point = {k: int(rng.choice([a, b, rng.integers(a, b + 1)])) for k, (a, b) in RANGES.items()}
        if point["i"] == 0 and "// i" in text:
            continue
        assert low <= eval(text, {}, point) <= high


class _Python:
    """Python's operators as nodes; `@` stands for `//`."""

    def __init__(self, expr):
        self.expr = expr

    def _two(make, turned=False):
        def build(self, other):
            other = other.expr if isinstance(other, _Python) else const(other, "int32")
            return _Python(make(other, self.expr) if turned else make(self.expr, other))

        return build

    __add__, __sub__, __mul__, __matmul__ = map(_two, (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv))
    __mod__, __lshift__, __rshift__, __and__ = map(_two, (tirx.FloorMod, tirx.LShift, tirx.RShift, tirx.BitwiseAnd))
    __rsub__ = _two(tirx.Sub, True)
