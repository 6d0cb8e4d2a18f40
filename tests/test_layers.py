"""Imports flow one way: the rows of docs/design.md ("Folders"), checked over the syntax trees of the package's modules."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tilelang"
ROWS = (
    ("errors", "knobs"),
    ("layout", "target"),
    ("ir",),
    ("frontend", "tileop"),
    ("language", "passes"),
    ("backend",),
    ("compiler",),
    ("runtime",),
)
PASS_ROWS = (("analysis",), ("program", "layouts", "block"), ("pipeline", "partition"), ("roles", "waits", "barriers"), ("memory",))
ROW = {folder: row for row, folders in enumerate(ROWS) for folder in folders}
TOP = len(ROWS)  # autotune, explain, __main__, compatibility modules, and the package's own __init__
ENVIRONMENT = {"knobs", "backend.cpu.threads"}  # the second hands the number of threads to TVM
OPTIONAL = {"torch", "matplotlib", "cuda", "cupti", "pytest"}  # third parties that may be imported inside a function


def module_name(path: Path) -> str:
    """Dotted name inside the package: "ir.kernel", "ir" for ir/__init__.py, "" for the package itself."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}


def absolute(name: str, node: ast.ImportFrom) -> str:
    """The full dotted name of what a `from ... import` names as its module."""
    if not node.level:
        return node.module or ""
    is_package = SOURCES[name].name == "__init__.py"
    parts = ["tilelang", *(name.split(".") if name else [])]
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def imported(name: str, node: ast.AST) -> list[str]:
    """Full dotted names that one import statement of module `name` loads; submodules where they are meant."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    source = absolute(name, node)
    inside = source.removeprefix("tilelang").lstrip(".") if source.split(".")[0] == "tilelang" else None
    if inside is None:
        return [source]
    names = [f"{inside}.{alias.name}".lstrip(".") for alias in node.names]
    return [f"tilelang.{full}" if full in SOURCES else source for full in names]


def internal(name: str) -> set[str]:
    """Modules of the package that module `name` imports anywhere."""
    full = {target for node in ast.walk(TREES[name]) for target in imported(name, node)}
    return {target.removeprefix("tilelang").lstrip(".") for target in full if target.split(".")[0] == "tilelang"}


def row(name: str) -> int:
    return ROW.get(name.partition(".")[0], TOP)


@pytest.mark.parametrize("name", SOURCES)
def test_imports_go_down_or_stay_in_the_folder(name):
    for target in internal(name) - {name}:
        folder, other = name.split(".")[0], target.split(".")[0]
        allowed = row(target) < row(name) or folder == other or row(name) == row(target) == TOP
        assert allowed, f"{name} (row {row(name)}) imports {target} (row {row(target)})"


@pytest.mark.parametrize("name", [name for name in SOURCES if name.count(".") == 2 and name.startswith("passes.")])
def test_passes_import_only_from_lower_rows(name):
    rows = {folder: row for row, folders in enumerate(PASS_ROWS) for folder in folders}
    own = name.split(".")[1]
    for target in internal(name) - {"passes"}:
        if target.startswith("passes."):
            other = target.split(".")[1]
            assert own == other or rows[other] < rows[own], f"{name} imports {target}"


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith("backend.")])
def test_backends_do_not_import_each_other(name):
    for target in internal(name):
        if target.startswith("backend."):
            allowed = {name.split(".")[1], "base", "llvm", *(["gpu"] if name.split(".")[1] in ("cuda", "simt") else [])}
            assert target.split(".")[1] in allowed, f"{name} imports {target}"


def test_no_cycles():
    graph = {name: internal(name) & SOURCES.keys() - {name} for name in SOURCES}
    while ready := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in ready:
            del graph[name]
    assert not graph, f"modules on, or behind, a cycle of imports: {sorted(graph)}"


@pytest.mark.parametrize("name", SOURCES)
def test_no_star_imports_and_no_imports_inside_functions(name):
    functions = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    inner = [(node.lineno, target) for function in functions for node in ast.walk(function) for target in imported(name, node)]
    wrong = [f"line {line}: {target}" for line, target in inner if target.split(".")[0] not in OPTIONAL]
    assert not wrong, f"{name} imports inside a function: {wrong}"
    stars = [node.lineno for node in ast.walk(TREES[name]) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    assert not stars, f"{name} has a star import in line {stars}"


@pytest.mark.parametrize("name", SOURCES)
def test_one_door_to_tvm_and_one_to_the_environment(name):
    roots = {target.split(".")[0] for node in ast.walk(TREES[name]) for target in imported(name, node)}
    assert name == "ir.tvm_api" or not roots & {"tvm", "tvm_ffi"}, f"{name} imports TVM; import it from ir.tvm_api"
    attributes = {node.attr for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
    assert name in ENVIRONMENT or not attributes & {"environ", "getenv"}, f"{name} reads the environment; declare a knob in knobs.py"
