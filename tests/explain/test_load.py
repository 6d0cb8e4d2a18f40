"""Finding a program in a file: every kind of object, and an error for every way to miss."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tilelang.errors import TileNameError, TileTypeError, TileValueError
from tilelang.explain.load import as_program, find, import_file, parse_arguments, split_target
from tilelang.ir.tvm_api import Evaluate, IntImm, PrimFunc

PROGRAM = PrimFunc([], Evaluate(IntImm("int32", 0)))


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("a.py:f", "a.py", "f"),
        ("a.py", "a.py", ""),
        ("dir/a.py:f.g", "dir/a.py", "f.g"),
        ("C:/x/a.py:f", "C:/x/a.py", "f"),
        ("C:/x/a.py", "C:/x/a.py", ""),
    ],
)
def test_split(text, path, name):
    assert split_target(text) == (Path(path), name)


def test_arguments_are_literals_or_text():
    assert parse_arguments(["M=1024", "dtype=float16", "shape=(1, 2)", "flag=True", "s='x=y'", "scale=0.5"]) == {
        "M": 1024, "dtype": "float16", "shape": (1, 2), "flag": True, "s": "x=y", "scale": 0.5,
    }  # fmt: skip
    for bad in ("M", "=3", "a b=1"):
        with pytest.raises(TileValueError, match="expected name=value"):
            parse_arguments([bad])


def test_import_and_find(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    file = tmp_path / "some.py"
    file.write_text(
        "import beside\n\nclass K:\n    inner = beside.VALUE\n\ndef make():\n    pass\n\n"
        "if __name__ == '__main__':\n    raise SystemExit(3)\n"
    )
    module = import_file(file)
    assert find(module, "K.inner", file) == 7
    with pytest.raises(TileNameError, match="defines no nothing"):
        find(module, "nothing", file)
    with pytest.raises(TileValueError, match=r"has no program .*\n.*some\.py:make"):
        find(module, "", file)
    with pytest.raises(FileNotFoundError, match=r"no file .*missing\.py"):
        import_file(tmp_path / "missing.py")
    (tmp_path / "data.txt").write_text("")
    with pytest.raises(TileValueError, match="no Python file"):
        import_file(tmp_path / "data.txt")


def test_the_only_program_needs_no_name():
    module = SimpleNamespace(one=PROGRAM, other=3)
    assert find(module, "", Path("a.py")).same_as(PROGRAM)  # type: ignore[arg-type]
    module.two = SimpleNamespace(get_tir=lambda: PROGRAM)
    with pytest.raises(TileValueError, match=r"has 2 programs\n.*a\.py:one, a\.py:two"):
        find(module, "", Path("a.py"))  # type: ignore[arg-type]


def test_every_kind_of_program():
    def factory(M, N=4):
        return PROGRAM

    class Jit:
        fn = staticmethod(factory)

        def __call__(self, *args, **named):
            raise AssertionError("compiled instead of traced")

        def get_tir(self, **named):
            return factory(**named)

    assert as_program(PROGRAM).same_as(PROGRAM)
    assert as_program(SimpleNamespace(prim_func=PROGRAM)).same_as(PROGRAM)
    assert as_program(factory, {"M": 1}).same_as(PROGRAM)
    assert as_program(Jit(), {"M": 1, "N": 2}).same_as(PROGRAM)
    assert as_program(lambda: SimpleNamespace(prim_func=PROGRAM)).same_as(PROGRAM)


def test_errors():
    def factory(M, N, K=1):
        return 5

    with pytest.raises(TileTypeError, match=r"factory\(M, N, K=1\) needs arguments: N\n.*--arg N="):
        as_program(factory, {"M": 1})
    with pytest.raises(TileTypeError, match="no parameter Q"):
        as_program(factory, {"M": 1, "N": 1, "Q": 1})
    with pytest.raises(TileTypeError, match="returned a int, expected a program"):
        as_program(factory, {"M": 1, "N": 2})
    with pytest.raises(TileTypeError, match="x is a int, neither a program"):
        as_program(3, name="x")
    with pytest.raises(TileTypeError, match="takes no arguments here, got M"):
        as_program(PROGRAM, {"M": 1}, "main")
