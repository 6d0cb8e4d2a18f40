"""What the analyzer is told about names."""

import random

import pytest

from tilelang.ir.dialect import VAR
from tilelang.ir.evaluate import evaluate
from tilelang.ir.tvm_api import IntImm, Var, const, decl_buffer, load, tirx
from tilelang.passes.facts import Facts


def test_half_of_an_unknown_integer_has_either_sign():
    """The number of its values does not fit in its own type."""
    x = decl_buffer((1,), "int32", "x", VAR)
    half = Var("half", "int32")
    facts = Facts()
    facts.bind_value(half, tirx.FloorDiv(load(x, [0]), IntImm("int32", 2)))
    zero = IntImm("int32", 0)
    for comparison in (tirx.GE(half, zero), tirx.LT(half, zero)):
        assert not isinstance(facts.simplify(comparison), IntImm)


NEAR = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1), "uint16": (0, (1 << 16) - 1),
        "int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1)}  # fmt: skip
COMBINE = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod)


def random_value(rng, dtype, leaves, depth):
    """An expression of these leaves and small constants; divisors are positive constants."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves) if rng.random() < 0.7 else const(rng.randrange(0, 6), dtype)
    if rng.random() < 0.1:
        compared = tirx.LT(*(random_value(rng, dtype, leaves, depth - 1) for _ in range(2)))
        return tirx.Select(compared, *(random_value(rng, dtype, leaves, depth - 1) for _ in range(2)))
    kind = rng.choice(COMBINE)
    a = random_value(rng, dtype, leaves, depth - 1)
    divides = kind in (tirx.FloorDiv, tirx.FloorMod)
    b = const(rng.randrange(1, 6), dtype) if divides else random_value(rng, dtype, leaves, depth - 1)
    return kind(a, b)


def wrapped(expr, values, dtype):
    """The value of an expression in arithmetic that wraps around in every node."""
    bits = int(dtype.lstrip("uint"))

    def at(node):
        if isinstance(node, Var | IntImm):
            return values[node] if isinstance(node, Var) else int(node)
        if isinstance(node, tirx.Select):
            return at(node.true_value) if at(node.condition) else at(node.false_value)
        if isinstance(node, tirx.Not):
            return int(not at(node.a))
        if isinstance(node, tirx.And | tirx.Or):
            return int((all if isinstance(node, tirx.And) else any)((at(node.a), at(node.b))))
        names = [Var("a", "int64"), Var("b", "int64")]
        value = int(evaluate(type(node)(*names), dict(zip(names, (at(node.a), at(node.b)), strict=True))))
        if str(node.ty.dtype) == "bool":
            return value
        value %= 1 << bits
        return value - (1 << bits) if dtype.startswith("int") and value >> (bits - 1) else value

    return at(expr)


@pytest.mark.parametrize("known", ["from memory", "a parameter"])
@pytest.mark.parametrize("dtype", NEAR)
def test_simplified_expressions_have_the_same_value_at_the_ends_of_their_type(dtype, known):
    rng = random.Random(f"{dtype} {known}")  # products of parameters are taken to fit: they count elements
    low, high = NEAR[dtype]
    near = [*range(low, low + 4), *range(high - 3, high + 1), *range(8)]
    cell = load(decl_buffer((1,), dtype, "X"), [0])
    for _ in range(120):
        i, d = Var("i", dtype), Var("d", dtype)
        facts = Facts()
        facts.bind_range(i, 0, 6)
        if known == "from memory":
            facts.bind_value(d, cell)
        compare = rng.choice((tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.Min, tirx.Max, tirx.Add))
        expr = compare(
            random_value(rng, dtype, [i], 3), random_value(rng, dtype, [i, d], rng.choice((0, 1, 1, 2)) if known == "from memory" else 0)
        )
        result = facts.simplify(expr)
        if result is expr:
            continue
        for a in range(6):
            for b in near:
                at = {i: a, d: b}
                assert wrapped(result, at, dtype) == wrapped(expr, at, dtype), f"{expr} became {result} (i = {a}, d = {b})"
