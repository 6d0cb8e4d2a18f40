"""Compiled programs kept: in memory for the process, on disk for the next one.

In: a program, a target, pass configuration. Out: an `Artifact`, compiled or loaded. The key is a hash of everything that
decides the generated code, so an entry never needs to be invalidated: program text, target, the backend's own version,
configuration, knobs, and the sources of this package. Entries appear by an atomic rename and carry checksums; a damaged
one counts as missing. Keeping entries is an optimisation: a disk that cannot be written costs a compilation, not an error.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..backend.base import Artifact
from ..compiler.compile import backend_for, check, compile_program, context, load_artifact
from ..ir.text import canonical_text
from ..ir.tvm_api import PrimFunc
from ..knobs import knobs
from ..target.target import Target

MANIFEST = "manifest.json"
PARTS = "artifact"  # the folder inside an entry that belongs to the backend

_memory: dict[str, Artifact] = {}
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


@functools.cache
def compiler_fingerprint() -> str:
    """Hash of the package's sources: a changed compiler never reuses what another one made."""
    root = str(Path(__file__).resolve().parent.parent)
    digest = hashlib.blake2b(digest_size=16)
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(f for f in files if f.endswith(".py")):
            path = f"{folder}{os.sep}{name}"
            digest.update(path[len(root) :].encode())
            with open(path, "rb", buffering=0) as source:
                digest.update(source.read())
    return digest.hexdigest()


def cache_key(func: PrimFunc, target: Target, config: Mapping[str, Any]) -> str:
    """Name of the entry, 40 hex digits."""
    text = canonical_text(func)
    # Positions do not count, except that a failing assertion tells its own.
    where = str(func.attrs["tl.source"]) if "assert" in text and "tl.source" in func.attrs else ""
    parts = (
        text, where, str(target), backend_for(target).version(context(target, config)),
        json.dumps(dict(config), sort_keys=True, default=repr), json.dumps(knobs.codegen_key()), compiler_fingerprint(),
    )  # fmt: skip
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def enabled() -> bool:
    return not knobs.disable_cache


def cached_artifact(func: PrimFunc, target: Target, config: Mapping[str, Any]) -> tuple[str, Artifact]:
    """(key, artifact): from memory, from disk, or compiled now. Threads asking for the same program compile it once."""
    if not enabled() or knobs.dump:  # nothing could be dumped of a program whose code is at hand
        return "", compile_program(func, target, config)
    key = cache_key(func, target, config)
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        artifact = _memory.get(key) or _load(key, func, target, config)
        if artifact is not None:
            check(func, target, config)
        else:
            artifact = compile_program(func, target, config)
            _save(key, artifact)
        _memory[key] = artifact
    return key, artifact


def clear_cache() -> None:
    """Forget everything kept, in memory and in the cache folder."""
    _memory.clear()
    for entry in _entries():
        _remove(entry)


# ---------------------------------------------------------------- disk
def _folder(key: str) -> Path:
    return Path(knobs.cache_dir) / key[:2] / key


def _entries() -> list[Path]:
    """Entries and abandoned temporary folders of the cache folder; nothing else in it is ours."""
    root = Path(knobs.cache_dir)
    return [p for p in (*root.glob("??/*"), *root.glob(".new-*")) if p.is_dir() and (p.name.startswith(".new-") or (p / MANIFEST).exists())]


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.blake2b(p.read_bytes(), digest_size=16).hexdigest() for p in files}


def _load(key: str, func: PrimFunc, target: Target, config: Mapping[str, Any]) -> Artifact | None:
    entry = _folder(key)
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        if manifest["files"] == _checksums(entry / PARTS) and manifest["files"]:
            return load_artifact(entry / PARTS, target, config, func)
    except FileNotFoundError:
        if not entry.exists():
            return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    _remove(entry)
    return None


def _save(key: str, artifact: Artifact) -> None:
    """Write the entry beside its place, then rename: another process sees all of it or nothing."""
    if artifact.save is None:
        return
    with contextlib.suppress(OSError):
        root = Path(knobs.cache_dir)
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        try:
            (fresh / PARTS).mkdir()
            artifact.save(fresh / PARTS)
            (fresh / MANIFEST).write_text(json.dumps({"key": key, "files": _checksums(fresh / PARTS)}))
            place = _folder(key)
            place.parent.mkdir(exist_ok=True)
            os.rename(fresh, place)  # fails if another process was first: its entry is as good
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _remove(entry: Path) -> None:
    """Take the entry out of sight at once, then delete it: no reader may meet half of it."""
    with contextlib.suppress(OSError):
        doomed = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parents[1] if entry.parent != Path(knobs.cache_dir) else entry.parent))
        with contextlib.suppress(OSError):
            os.rename(entry, doomed / "entry")
        shutil.rmtree(doomed, ignore_errors=True)
