"""Templates: what to compute, and the tile sizes worth trying."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...ir.dtypes import canonical
from ..arch import CUDA
from ..roller import Hint, NoRasterization

_BLOCKS = ((128, 256), (256, 128), (128, 128), (64, 256), (256, 64), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))


@dataclass(frozen=True)
class MatmulTemplate:
    """C[M, N] = A[M, K] B[K, N]. `with_arch(arch).recommend_hints(topk)` lists tile sizes, the most promising first."""

    M: int
    N: int
    K: int
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float32"
    arch: CUDA | None = None

    def with_arch(self, arch: CUDA) -> MatmulTemplate:
        return replace(self, arch=arch)

    def recommend_hints(self, topk: int = 10) -> list[Hint]:
        """Tiles that fit shared memory, ordered by the share of padded work, then by bytes loaded per multiplication."""
        arch = self.arch or CUDA()
        size = canonical(self.in_dtype).bits / 8
        depth = max(16, int(64 / size))

        def cost(block: tuple[int, int]) -> tuple[float, float]:
            m, n = block
            blocks = -(-self.M // m) * -(-self.N // n)
            waves = -(-blocks // arch.sm_count)
            return waves * m * n * arch.sm_count, 1 / m + 1 / n

        fitting = [b for b in _BLOCKS if (b[0] + b[1]) * depth * size * 2 <= arch.smem_cap]
        hints = []
        for m, n in sorted(fitting, key=cost):
            warps = (max(1, min(2, m // 32)), max(1, min(2, n // 32)))
            for stage in (2, 3, 4):
                if (m + n) * depth * size * stage <= arch.smem_cap:
                    hints.append(Hint([m, n], [m // warps[0], n // warps[1]], [depth], stage, NoRasterization()))
        return hints[:topk]


__all__ = ["MatmulTemplate"]
