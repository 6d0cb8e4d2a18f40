"""Errors carry the user's line, a caret under the right columns, and the remedy; they are builtin exceptions too."""

import warnings

import pytest

from tilelang import errors
from tilelang.errors import Location


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("a = 1\n    T.copy(A, B)\n")
    return str(path)


def test_caret_stands_under_the_columns(source):
    err = errors.TileValueError("shapes differ", at=Location(source, 2, 5, 2, 17), remedy="make them equal")
    lines = str(err).splitlines()
    assert lines[0] == "shapes differ"
    assert lines[1] == f"  --> {source}:2:5"
    code, caret = lines[3], lines[4]
    assert code.endswith("    T.copy(A, B)")
    assert code[caret.index("^") : caret.rindex("^") + 1] == "T.copy(A, B)"
    assert lines[-1] == "  help: make them equal"


def test_unreadable_source_still_gives_the_position():
    assert "nowhere.py:7:1" in str(errors.TileTypeError("wrong", at=Location("nowhere.py", 7)))


def test_locate_keeps_the_more_precise_position():
    err = errors.TileIndexError("x", at=Location("a.py", 1))
    err.locate(Location("b.py", 2))
    assert err.at == Location("a.py", 1)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.TileValueError, ValueError), (errors.TileTypeError, TypeError), (errors.TileIndexError, IndexError),
        (errors.TileNameError, NameError), (errors.TileAssertionError, AssertionError), (errors.TileRuntimeError, RuntimeError),
        (errors.TileNotSupportedError, NotImplementedError), (errors.JITNoBuilderError, RuntimeError),
    ],
)  # fmt: skip
def test_classes_are_builtin_exceptions(cls, builtin):
    assert issubclass(cls, builtin)
    assert issubclass(cls, errors.TileError)


def test_warning_is_given_at_the_users_line(source):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        errors.warn("careful", errors.UninitializedReadWarning, Location(source, 2, 5, 2, 17), [(Location(source, 1), "allocated here")])
    assert (seen[0].filename, seen[0].lineno, seen[0].category) == (source, 2, errors.UninitializedReadWarning)
    assert "allocated here" in str(seen[0].message)
