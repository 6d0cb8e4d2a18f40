"""The Python of README.md and of the pages in docs/ runs as written, each page as one program; the pages name every stage."""

import runpy
from pathlib import Path

import pytest

from tilelang.compiler.compile import BACKENDS
from tilelang.compiler.pipeline import stages_for

ROOT = Path(__file__).resolve().parents[1]
FENCE = "```"


def program(page: Path) -> str:
    """The page's Python blocks with every other line blank, so that line numbers are those of the page."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = line.startswith(FENCE)
        if fence:
            inside = line == f"{FENCE}python"
        lines.append(line if inside and not fence else "")
    return "\n".join(lines)


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if program(page).strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page, tmp_path):
    path = tmp_path / f"{page.stem}.py"
    path.write_text(program(page), encoding="utf-8")
    runpy.run_path(str(path), run_name="__main__")


def test_memory_page_shows_what_it_prints(tmp_path, capsys):
    page = ROOT / "docs" / "memory.md"
    path = tmp_path / "memory.py"
    path.write_text(program(page), encoding="utf-8")
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out.replace(f"{tmp_path}/", "")
    shown = [block.split(FENCE)[0] for block in page.read_text(encoding="utf-8").split(f"{FENCE}text\n")[1:]]
    assert len(shown) == 2
    assert "".join(shown) == printed


def test_every_stage_of_the_cpu_has_its_row():
    lines = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert {stage.name for stage in stages_for(BACKENDS["cpu"])} <= set(rows)
