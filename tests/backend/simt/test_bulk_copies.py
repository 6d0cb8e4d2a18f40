"""What the engine refuses, as the hardware would do something else."""

import numpy as np
import pytest

from tilelang.backend.simt.bulk_copies import Box
from tilelang.backend.simt.memory import Global
from tilelang.backend.simt.report import Site
from tilelang.errors import SimtError


def test_rows_that_end_inside_of_16_bytes():
    """Seen on an H200: a store clipped at 7 floats wrote 8."""
    x = Global("x", np.zeros(7, np.float32))
    with pytest.raises(SimtError, match="a bulk store of x: rows that end after 28 bytes"):
        Box(x, [0], (8,), [7], [1]).check(0, Site(None, "a bulk store"))
    Box(x, [0], (8,), [4], [1]).check(0, Site(None, "a bulk store"))


def test_where_boxes_begin():
    """Seen on an H200: a store from a negative corner is an illegal instruction."""
    x = Global("x", np.zeros(64, np.float32))
    starts = np.array([0, -4, 8, 6])
    box = Box(x, [0, starts], (1, 8), [1, 64], [64, 1])
    for column in (0, 1, 2):
        box.check_start(column, False, Site(None, "a bulk load"))
    with pytest.raises(SimtError, match=r"a bulk store of x: a box at \[0, -4\]; only loads may begin before the tensor"):
        box.check_start(1, True, Site(None, "a bulk store"))
    with pytest.raises(SimtError, match=r"a bulk load of x: a box at \[0, 6\], which is inside of 16 bytes of a row"):
        box.check_start(3, False, Site(None, "a bulk load"))
