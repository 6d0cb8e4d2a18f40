"""What happened to a program: `python -m tilelang explain file.py:function`, and the same as data.

`explain(program, target)` runs the compiler's stages and returns an `Explanation`: stages with their programs and times,
notes, and the memory of each kernel (`compiler/memory.py`).
"""

from .load import TileFileNotFoundError, as_program, find, import_file, parse_arguments, split_target
from .report import Explanation, StageReport, explain
from .text import memory_text, notes_text, overview, program_text, stages_text

__all__ = [
    "Explanation",
    "StageReport",
    "TileFileNotFoundError",
    "as_program",
    "explain",
    "find",
    "import_file",
    "memory_text",
    "notes_text",
    "overview",
    "parse_arguments",
    "program_text",
    "split_target",
    "stages_text",
]
