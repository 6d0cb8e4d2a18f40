"""What a program tells its callers: names, shapes, who is written, what is returned."""

import pytest

from tilelang.errors import TileValueError
from tilelang.ir.dialect import make_call
from tilelang.ir.tvm_api import BufferStore, DeclBuffer, Evaluate, PrimFunc, Var, const, decl_buffer, load, region, seq, tirx
from tilelang.runtime.signature import evaluate, show_shape, signature_of, symbols

ZERO = const(0.0, "float32")


def func(params, *stmts):
    return PrimFunc(params, seq(list(stmts))).with_attr("global_symbol", "main")


def buffer(name, shape=(4,), dtype="float32"):
    return decl_buffer(shape, dtype, name)


def written(program):
    return [p.name for p in signature_of(program).params if p.written]


def used(program):
    return [p.name for p in signature_of(program).params if p.used]


def test_parameters_in_order_with_symbols():
    n, s, p = Var("n", "int32"), Var("s", "float32"), Var("p", "handle")
    a, b = buffer("A", (n, 16)), decl_buffer((n * 2 + 1,), "float16", "B", strides=[Var("sb", "int64")])
    signature = signature_of(func([a, s, b, p], BufferStore(a, ZERO, [0, 0])))
    assert [(q.name, q.kind, q.dtype) for q in signature.params] == [
        ("A", "tensor", "float32"), ("s", "scalar", "float32"), ("B", "tensor", "float16"), ("p", "pointer", "handle")
    ]  # fmt: skip
    assert str(signature) == "main(A: float32(n, 16), s: float32, B: float16(((n * 2) + 1),), p: pointer)"
    assert signature.params[2].strides == ("sb",)
    assert signature.params[0].strides is None
    assert evaluate(signature.params[2].shape[0], {"n": 5}) == 11
    assert list(symbols(signature.params[2].shape[0])) == ["n"]


def test_two_symbols_of_the_same_name_stay_apart():
    a, b = buffer("A", (Var("n", "int32"),)), buffer("B", (Var("n", "int32"),))
    signature = signature_of(func([a, b], BufferStore(a, ZERO, [0])))
    assert signature.params[0].shape != signature.params[1].shape
    assert show_shape(signature.params[1].shape) == "(n_1,)"


@pytest.mark.parametrize("values, expected", [({"n": 7, "m": 2}, (9, 5, 14, 3, 1, 2, 7)), ({"n": -7, "m": 2}, (-5, -9, -14, -4, 1, -7, 2))])
def test_extents_evaluate_like_python(values, expected):
    n, m = Var("n", "int32"), Var("m", "int32")
    dims = (n + m, n - m, n * m, n // m, n % m, tirx.min(n, m), tirx.max(n, m))
    a = buffer("A", dims)
    shape = signature_of(func([buffer("N", (n, m)), a], BufferStore(a, ZERO, [0] * 7))).params[1].shape
    assert tuple(evaluate(d, values) for d in shape) == expected


def test_stores_write():
    a, b, c = buffer("A"), buffer("B"), buffer("C")
    program = func([a, b, c], BufferStore(b, load(a, [0]), [0]))
    assert written(program) == ["B"]
    assert used(program) == ["A", "B"]


def test_tile_operators_write_by_their_roles():
    a, b, c, d = buffer("A"), buffer("B"), buffer("C"), buffer("D")
    copy = make_call("tl.tileop.copy", [region(a, [0], [4]), region(b, [0], [4])])
    fill = make_call("tl.tileop.fill", [region(c, [0], [4]), ZERO])
    atomic = make_call("tl.atomic", [region(d, [0], [1]), load(a, [0])], "float32", kind="add")
    assert written(func([a, b, c, d], Evaluate(copy))) == ["B"]
    assert written(func([a, b, c, d], Evaluate(fill), Evaluate(atomic))) == ["C", "D"]


def test_views_pass_their_effects_on():
    a, b, view, second = buffer("A"), buffer("B"), buffer("V", (2, 2)), buffer("W", (4,))
    views = [DeclBuffer(view, data=a.data), DeclBuffer(second, data=view.data)]
    assert written(func([a, b], *views, BufferStore(second, ZERO, [0]))) == ["A"]
    assert written(func([a, b], *views, BufferStore(b, load(second, [0]), [0]))) == ["B"]


def test_pointers_are_written_through_their_tensors():
    p, q = Var("p", "handle"), Var("q", "handle")
    source, target = buffer("S"), buffer("T")
    program = func([p, q], DeclBuffer(source, data=p), DeclBuffer(target, data=q), BufferStore(target, load(source, [0]), [0]))
    assert written(program) == ["q"]
    assert used(program) == ["p", "q"]


def test_an_address_counts_as_written():
    a, b = buffer("A"), buffer("B")
    extern = tirx.call_extern("int32", "f", tirx.address_of(load(a, [0])), b.data)
    assert written(func([a, b], Evaluate(extern))) == ["A", "B"]


def two_outputs():
    n = Var("n", "int32")
    a, b, c = buffer("A", (n,)), buffer("B", (n + 1,)), buffer("C", (3,))
    return func([a, b, c, Var("s", "int32")], BufferStore(b, load(a, [0]), [0]), BufferStore(c, ZERO, [0]))


@pytest.mark.parametrize(
    "given, expected", [(None, ()), (1, (1,)), (-2, (2,)), ([1, 2], (1, 2)), ([-2, 1], (2, 1)), ((1,), (1,)), ([], ())]
)
def test_out_idx(given, expected):
    assert signature_of(two_outputs(), given).out_idx == expected


@pytest.mark.parametrize("given, text", [
    (4, "there is no parameter 4"), (-5, "no parameter -5"), ([1, -3], "names parameter B twice"), (3, "s: int32.* is not a tensor"),
    ([1.5], "1.5 is not a position"), (["B"], "'B' is not a position"), ([0, 1], "depends on n, which no argument determines"),
    ([True], "not a position"),
])  # fmt: skip
def test_wrong_out_idx(given, text):
    with pytest.raises(TileValueError, match=text):
        signature_of(two_outputs(), given)


def test_programs_with_their_own_outputs():
    program = two_outputs().with_attr("tl.out_idx", [1])
    assert signature_of(program).out_idx == (1,)
    with pytest.raises(TileValueError, match="returns its own outputs"):
        signature_of(program, 1)
