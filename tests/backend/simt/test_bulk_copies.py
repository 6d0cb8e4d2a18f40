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
