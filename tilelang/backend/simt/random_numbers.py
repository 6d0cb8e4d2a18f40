"""Random numbers of each thread: Philox 4x32-10, counter based, with the numbering that GPU libraries use.

In: seed, sequence and how many numbers were drawn, for each lane. Out: numbers. The n-th one is word n % 4 of
Philox(counter (n / 4, sequence), key seed).
"""

from __future__ import annotations

from typing import Any

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
ROUNDS = 10


class Generator:
    """The state of all lanes: seed, sequence, drawn (uint64 arrays)."""

    def __init__(self, lanes: int) -> None:
        self.seed, self.sequence, self.drawn = (np.zeros(lanes, np.uint64) for _ in range(3))

    def start(self, seed: Any, sequence: Any, drawn: Any, mask: Any) -> None:
        for state, value in ((self.seed, seed), (self.sequence, sequence), (self.drawn, drawn)):
            np.copyto(state, np.asarray(value, np.uint64), where=True if mask is None else mask)

    def word(self, mask: Any) -> np.ndarray:
        """The next number of every lane, uint32; lanes of the mask move on."""
        counter = self.drawn >> np.uint64(2)
        words = [counter & _LOW, counter >> _HALF, self.sequence & _LOW, self.sequence >> _HALF]
        keys = [self.seed & _LOW, self.seed >> _HALF]
        for round_ in range(ROUNDS):
            p, q = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
            k0, k1 = ((key + np.uint64(step * round_)) & _LOW for key, step in zip(keys, _KEY_STEPS, strict=True))
            words = [(q >> _HALF) ^ words[1] ^ k0, q & _LOW, (p >> _HALF) ^ words[3] ^ k1, p & _LOW]
        pick = (self.drawn & np.uint64(3)).astype(np.int64)
        np.copyto(self.drawn, self.drawn + np.uint64(1), where=True if mask is None else mask)
        return np.choose(pick, words).astype(np.uint32)

    def draw(self, what: str, kind: Any, mask: Any) -> Any:
        """what: uint32, uniform on (0, 1], or normal (mean 0, variance 1)."""
        if what == "uint32":
            return self.word(mask)
        first = self._uniform(kind, mask)
        if what == "uniform":
            return first
        second = self._uniform(kind, mask)
        return np.sqrt(kind(-2) * np.log(first)) * np.cos(kind(2 * np.pi) * second)

    def _uniform(self, kind: Any, mask: Any) -> Any:
        return self.word(mask).astype(kind) * kind(2.0**-32) + kind(2.0**-33)
