"""What a block of a GPU may have, by architecture. In: a `Target`. Out: numbers of the vendor's programming guide."""

from __future__ import annotations

from .target import Target

DEFAULT_ARCH = "sm_90a"
REGISTERS_PER_THREAD = 255  # of 32 bits; from sm_80 on also the limit of a block, 64 Ki, is the same everywhere
REGISTERS_PER_BLOCK = 64 * 1024
# Of a block's dynamic shared memory: what bulk copies with a 128-byte swizzle need. Static arrays before it are rounded up to this.
SHARED_ALIGNMENT = 1024
# Bytes of shared memory that one block may use after opting in.
_SHARED_BYTES = {"70": 96, "72": 96, "75": 64, "80": 163, "86": 99, "87": 163, "89": 99, "90": 227, "100": 227, "103": 227, "120": 99}


def architecture(target: Target) -> str:
    """The architecture that a target names, e.g. "sm_90"; the default one where it names none."""
    found = target.option("arch", DEFAULT_ARCH)
    return DEFAULT_ARCH if found in ("", "auto", "native") else found


def generation(target: Target) -> int:
    """The number of the target's architecture, 90 for "sm_90a"; 0 for a name without one."""
    return int("".join(c for c in architecture(target) if c.isdigit()) or 0)


def has_clusters(target: Target) -> bool:
    """Do blocks come in clusters, and may kernels be launched while those before them run? (CUDA programming guide: from 9.0 on)"""
    return generation(target) >= 90


def shared_bytes(target: Target) -> int:
    """Bytes of shared memory a block may use; those of the default architecture where the given one is unknown."""
    return _SHARED_BYTES.get(str(generation(target)), _SHARED_BYTES["90"]) * 1024
