"""The Python of README.md and of the pages in docs/ runs as written, each page as one program; the pages name every stage."""

import runpy
from pathlib import Path

import pytest

from tilelang.compiler.compile import BACKENDS
from tilelang.compiler.pipeline import STAGES, stages_for

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


@pytest.mark.parametrize("kind", sorted(BACKENDS))
def test_every_stage_has_its_row(kind):
    """In the order in which they run, and none that is no more."""
    lines = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("`")[1] for line in lines if line.startswith("| `")]
    shared = [stage.name for stage in STAGES if stage.run is not None]
    assert [row for row in rows if row in shared] == shared
    own = [name for slot in BACKENDS[kind].slots.values() for name, _ in slot]
    assert [row for row in rows if row in own] == own
    everything = {stage.name for backend in BACKENDS.values() for stage in stages_for(backend)}
    assert set(rows) <= everything
