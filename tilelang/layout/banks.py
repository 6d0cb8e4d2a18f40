"""What a warp's access to shared memory costs, by the byte address of each lane: the one counting rule of this package.

Shared memory has 32 banks of 4 bytes; a pass ("wavefront" in the profiler's words) serves every bank once. Up to 4 bytes a lane a warp
is served at once, 8 bytes by half warps, 16 by quarters (the rows of an `ldmatrix` are 16 bytes each, so its phases are 8 rows). Each
such phase needs as many passes as its most crowded bank has different words; lanes that name one word share its pass. Conflicts are
the passes beyond one for each phase (CUDA C++ Programming Guide, "Shared Memory"; 8 and 16 bytes as measured by profilers).

In: arrays of addresses. Out: counts, and the lanes that collide. NumPy only.
"""

from __future__ import annotations

import numpy as np

BANKS = 32
WORD = 4  # bytes of a bank
WARP = 32
WIDTHS = (1, 2, 4, 8, 16)  # bytes of one lane's access
NOBODY = -1  # the address of a lane that takes no part


def phases_of(width: int) -> int:
    """Into how many phases a warp's access of `width` bytes a lane is cut."""
    return max(1, WARP * width // (BANKS * WORD))


def passes(addresses: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(passes, phases with a lane in them) of each access. addresses: (accesses, 32) in bytes, -1 in lanes that take no part."""
    phases = phases_of(width)
    count = len(addresses)
    where = np.ascontiguousarray(addresses, np.int64).reshape(count * phases, -1)
    words = np.repeat(where, max(1, width // WORD), 1) // WORD
    if width > WORD:
        words = words + np.tile(np.arange(width // WORD), where.shape[1])
    words = np.where(np.repeat(where, max(1, width // WORD), 1) < 0, NOBODY, words)
    words.sort(1)
    new = words >= 0
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    rows, _ = np.nonzero(new)
    crowd = np.bincount(rows * BANKS + words[new] % BANKS, minlength=count * phases * BANKS).reshape(count, phases, BANKS).max(2)
    return crowd.sum(1), (crowd > 0).sum(1)


def collision(addresses: np.ndarray, width: int) -> tuple[int, tuple[int, ...]]:
    """(bank, lanes) of the worst phase of one access: its most crowded bank, and one lane for each word that is wanted from it."""
    phases = phases_of(width)
    best: tuple[int, tuple[int, ...]] = (0, ())
    lanes = len(addresses) // phases
    for phase in range(phases):
        wanted: dict[int, dict[int, int]] = {}
        for lane in range(phase * lanes, (phase + 1) * lanes):
            address = int(addresses[lane])
            for word in range(address // WORD, (address + width - 1) // WORD + 1) if address >= 0 else ():
                wanted.setdefault(word % BANKS, {}).setdefault(word, lane)
        for bank, found in sorted(wanted.items()):
            if len(found) > len(best[1]):
                best = bank, tuple(found.values())
    return best
