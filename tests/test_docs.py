"""The Python of README.md and of the pages in docs/ runs as written, each page as one program."""

import runpy
from pathlib import Path

import pytest

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
