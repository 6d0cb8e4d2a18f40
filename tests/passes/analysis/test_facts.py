"""What the analyzer is told about names, and that what it answers holds in arithmetic that wraps around."""

import operator
import random

import numpy as np
import pytest

from tilelang.ir.annotations import LARGEST_SIZE
from tilelang.ir.dialect import VAR
from tilelang.ir.tvm_api import Cast, IntImm, PrimFunc, TensorLoad, Var, const, decl_buffer, load, tirx
from tilelang.passes.analysis.facts import COMPARISONS, Facts, sizes_of

from ..programs import kernel


def test_half_of_an_unknown_integer_has_either_sign():
    """The number of its values does not fit in its own type."""
    x = decl_buffer((1,), "int32", "x", VAR)
    half = Var("half", "int32")
    facts = Facts()
    facts.bind_value(half, tirx.FloorDiv(load(x, [0]), IntImm("int32", 2)))
    zero = IntImm("int32", 0)
    for comparison in (tirx.GE(half, zero), tirx.LT(half, zero)):
        assert not isinstance(facts.simplify(comparison), IntImm)


def test_only_extents_are_sizes():
    n, m, half, scale = (Var(name, "int32") for name in ("n", "m", "half", "scale"))
    A = decl_buffer((n, m + n, 2 * half), "float32", "A")
    func = kernel([A], lambda b, t: [])
    func = PrimFunc([*func.params, m, scale], func.body, func.ret_type, func.attrs)
    assert sizes_of(func) == {n: (0, LARGEST_SIZE), half: (0, (1 << 31) - 1)}, "m and scale may have any value"


def test_arithmetic_on_extents_and_positions_counts_elements():
    n, block, i, d = (Var(name, "int32") for name in ("n", "block", "i", "d"))
    facts = Facts({n: (0, LARGEST_SIZE)})
    facts.bind_range(block, 0, tirx.FloorDiv(n + 127, const(128, "int32")))
    facts.bind_range(i, 0, 128)
    assert facts.bounds(block * 128 + i)[0] == 0 and facts.bounds(block * 128 + i)[1] < 1 << 31
    assert facts.simplify(tirx.FloorDiv(block * 128 + i, const(128, "int32"))).same_as(block)
    assert facts.bounds(d * 2) == (-(1 << 31), (1 << 31) - 1)
    assert not isinstance(facts.simplify(tirx.EQ(tirx.FloorDiv(d * 2, const(2, "int32")), d)), IntImm)


def test_a_multiple_survives_wrapping_only_for_powers_of_two():
    d, facts = Var("d", "int32"), Facts()
    assert facts.multiple_of(d * 16 + 32, 16) and not facts.multiple_of(d * 16 + 8, 16)
    assert not facts.multiple_of(d * 3, 3), "3 * 2^31 - 2^32 is no multiple of 3"
    facts.bind_range(d, 0, 1000)
    assert facts.multiple_of(d * 3, 3)


# ---------------------------------------------------------------- against NumPy
NEAR = {f"{sign}int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if not sign else (0, (1 << bits) - 1)
        for sign in ("", "u") for bits in (8, 16, 32, 64)}  # fmt: skip
DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
COMBINE = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, *DIVISIONS)
TRIPS, KNOWN = 6, ("from memory", "a parameter", "an extent")


def random_value(rng, dtype, leaves, depth):
    """An expression of these leaves and small constants. Divisors may have any value, 0 and -1 as well."""
    if depth == 0 or rng.random() < 0.15:
        least = 0 if dtype.startswith("uint") else -2
        return rng.choice(leaves) if rng.random() < 0.7 else const(rng.randrange(least, 6), dtype)
    if rng.random() < 0.1:
        compared = rng.choice(COMPARISONS)(*(random_value(rng, dtype, leaves, depth - 1) for _ in range(2)))
        return tirx.Select(compared, *(random_value(rng, dtype, leaves, depth - 1) for _ in range(2)))
    if rng.random() < 0.05:
        narrow = rng.choice(list(NEAR))
        return Cast(dtype, Cast(narrow, random_value(rng, dtype, leaves, depth - 1)))
    kind = rng.choice(COMBINE)
    a = random_value(rng, dtype, leaves, depth - 1)
    if kind in DIVISIONS and rng.random() < 0.6:
        return kind(a, const(rng.randrange(1, 6), dtype))
    b = random_value(rng, dtype, leaves, depth - 1)
    return kind(a, b if kind not in DIVISIONS or not isinstance(b, IntImm) or int(b) else const(1, dtype))  # the front end refuses x // 0


def truncated(a, b):
    """a / b towards 0 in unbounded integers; 0 if b is 0."""
    quotient = [0 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    low, count = int(np.iinfo(a.dtype).min), 1 << 8 * a.itemsize
    return np.array([(q - low) % count + low for q in quotient], a.dtype)


NUMPY = {
    tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply, tirx.Min: np.minimum, tirx.Max: np.maximum,
    tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.remainder, tirx.Div: truncated, tirx.Mod: np.fmod,
    tirx.LT: np.less, tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal, tirx.EQ: np.equal, tirx.NE: np.not_equal,
    tirx.And: np.logical_and, tirx.Or: np.logical_or,
}  # fmt: skip


def value(node, values):
    """The value of an expression at many points at once, as NumPy's integers have it."""
    count = len(next(iter(values.values())))
    if isinstance(node, Var):
        return values[node]
    if isinstance(node, TensorLoad):
        return values[node.source]
    if isinstance(node, IntImm):
        return np.full(count, int(node), str(node.ty.dtype))
    if isinstance(node, tirx.Select):
        return np.where(value(node.condition, values), value(node.true_value, values), value(node.false_value, values))
    if isinstance(node, Cast):
        return value(node.value, values).astype(str(node.ty.dtype))
    if isinstance(node, tirx.Not):
        return ~value(node.a, values)
    with np.errstate(all="ignore"):
        return NUMPY[type(node)](value(node.a, values), value(node.b, values))


class World:
    """A loop variable i, an integer d that is known in one way, a name v for a value of them; and points that go with it."""

    def __init__(self, rng, dtype, known):
        low, high = NEAR[dtype]
        near = [*range(low, low + 4), *range(high - 3, high + 1), *range(8), *([-1, -2, -3] if low else []), high // 2, high // 2 + 1]
        self.i, self.d, self.v = (Var(name, dtype) for name in "idv")
        self.cell = load(decl_buffer((1,), dtype, "X"), [0])
        self.facts = Facts({self.d: (0, min(high, LARGEST_SIZE))} if known == "an extent" else {})
        self.facts.bind_range(self.i, 0, TRIPS)
        if known == "from memory":
            self.facts.bind_value(self.d, self.cell)
        if known == "an extent":
            near = [x for x in near if 0 <= x <= LARGEST_SIZE] + [min(high, LARGEST_SIZE)]
        i, d = (a.ravel().astype(dtype) for a in np.meshgrid(range(TRIPS), np.array(near, dtype)))
        self.points = {self.i: i, self.d: d, self.cell.source: d}
        named = random_value(rng, dtype, [self.i, self.d], 2)
        self.facts.bind_value(self.v, named)
        self.points[self.v] = value(named, self.points)
        self.leaves = [self.i, self.d, self.v]


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("dtype", NEAR)
def test_answers_hold_at_the_ends_of_the_type(dtype, known):
    """Simpler expressions, bounds and proofs; inside of conditions for the points at which these hold."""
    rng = random.Random(f"{dtype} {known}")
    for _ in range(150):
        world = World(rng, dtype, known)
        facts, points = world.facts, world.points
        a, b = (random_value(rng, dtype, world.leaves, rng.choice((0, 1, 2, 3))) for _ in range(2))
        expr = rng.choice((*COMPARISONS, tirx.Min, tirx.Max, tirx.Add, tirx.Sub, tirx.FloorDiv, tirx.FloorMod))(a, b)
        given = [rng.choice(COMPARISONS)(*(random_value(rng, dtype, world.leaves, rng.choice((0, 1, 2))) for _ in range(2)))
                 for _ in range(rng.choice((0, 0, 1, 2)))]  # fmt: skip
        held = np.ones(len(points[world.i]), bool)
        for condition in given:
            held &= value(condition, points)
        with facts.assuming(given):
            result, bounds, inside = facts.simplify(expr), facts.bounds(a), facts.inside(a, a, b)
            multiple = facts.multiple_of(a, 4), facts.multiple_of(a, 3)
        what = f"{expr}, given {[str(c) for c in given]}, v = {world.facts.analyzer.simplify(world.v)}"
        of_expr, of_result, of_a, of_b = (value(e, points)[held] for e in (expr, result, a, b))
        assert of_expr.dtype == of_result.dtype and (of_expr == of_result).all(), f"{what} became {result}"
        if held.any():
            assert bounds[0] <= int(of_a.min()) and int(of_a.max()) <= bounds[1], f"{a} in {bounds}: {what}"
        assert (not inside[0] or (of_a >= 0).all()) and (not inside[1] or (of_a < of_b).all()), f"{a} inside {b}: {what}"
        for count, is_multiple in zip((4, 3), multiple, strict=True):
            assert not is_multiple or not any(operator.mod(int(x), count) for x in of_a), f"{a} a multiple of {count}: {what}"
