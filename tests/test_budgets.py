"""Sizes that keep the package readable: modules of at most 500 lines, functions of at most 60."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tilelang"
MODULES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULE_LINES, FUNCTION_LINES = 500, 60


@pytest.mark.parametrize("module", MODULES)
def test_size(module):
    text = MODULES[module].read_text(encoding="utf-8")
    lines = len(text.splitlines())
    assert lines <= MODULE_LINES, f"{module} has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{module}:{node.lineno}: {node.name} has {length} lines"


@pytest.mark.parametrize("module", MODULES)
def test_module_docstring(module):
    text = MODULES[module].read_text(encoding="utf-8")
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{module} does not say what it is"
