"""Owns calibration files: finding the one for a node or cluster, reading and writing them.

Shipped ones stand in `profiles/clusters/`, a user's own in $XDG_CONFIG_HOME/gpt-tune/calibration/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpt_tune import toml
from gpt_tune.calibration.constants import Calibration
from gpt_tune.errors import UserError
from gpt_tune.hardware.parts import Node
from gpt_tune.resources import config_dir, data_dir

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def shipped(node: Node, cluster: str | None = None) -> Calibration:
    """The calibration that comes with gpt-tune, whatever the user has measured."""
    return _shipped_for(node, cluster)


def forget(cluster: str) -> bool:
    """Remove the user's calibration of a cluster; whether there was one."""
    path = user_path(cluster)
    if not path.is_file():
        return False
    path.unlink()
    return True


def load(node: Node, cluster: str | None = None) -> Calibration:
    """The best calibration known: the user's for this cluster, else the shipped one of the node or its GPU.

    A user's file is laid over the shipped one, so that it may hold a few constants only.
    """
    base = _shipped_for(node, cluster)
    path = user_path(cluster) if cluster and _NAME.fullmatch(cluster) else None
    if path is None or not path.is_file():
        return base
    return _laid_over(read(path), base)


def user_path(cluster: str) -> Path:
    """Where a user's calibration of a cluster is kept."""
    if not _NAME.fullmatch(cluster):
        raise UserError(
            f"{cluster!r} cannot name a calibration file.",
            "Use letters, digits, dots, dashes and underscores.",
        )
    return config_dir() / "calibration" / f"{cluster}.toml"


def save(calibration: Calibration, cluster: str) -> Path:
    """Write the user's calibration of a cluster; the file is replaced in one step."""
    path = user_path(cluster)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".tmp")
    draft.write_text(to_toml(calibration), encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)
    return path


def read(path: Path) -> Calibration:
    """A calibration file. UserError names the file and the key that is wrong."""
    return _build(toml.load(path), str(path))


def to_toml(calibration: Calibration) -> str:
    """The calibration as the text of its file."""
    return toml.dump(
        {
            "name": calibration.name,
            "source": calibration.source,
            "fitted_at": calibration.fitted_at,
            "memory": _section(calibration.memory, calibration.memory_error, calibration.memory_rows),
            "timing": _section(calibration.timing, calibration.time_error, calibration.time_rows),
        }
    )


def _section(constants: Mapping[str, float], error: float | None, rows: int) -> dict[str, Any]:
    return {"error": error, "rows": rows, "constants": dict(constants)}


def _build(data: Mapping[str, Any], where: str) -> Calibration:
    known = {"name", "source", "fitted_at", "gpu", "nodes", "memory", "timing"}
    unknown = sorted(set(data) - known)
    if unknown:
        raise UserError(f"Unknown key {unknown[0]!r} in {where}.", f"Known: {', '.join(sorted(known))}.")
    memory, timing = _table(data, "memory", where), _table(data, "timing", where)
    fitted_at = data.get("fitted_at")
    return Calibration(
        name=str(data.get("name", Path(where).stem)),
        source=str(data.get("source", "")),
        fitted_at=None if fitted_at is None else str(fitted_at),
        memory=_constants(memory, f"memory of {where}"),
        timing=_constants(timing, f"timing of {where}"),
        memory_error=_number(memory["error"], "memory.error", where) if "error" in memory else None,
        memory_rows=int(_number(memory.get("rows", 0), "memory.rows", where)),
        time_error=_number(timing["error"], "timing.error", where) if "error" in timing else None,
        time_rows=int(_number(timing.get("rows", 0), "timing.rows", where)),
    )


def _table(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, Mapping):
        raise UserError(f"{key!r} in {where} must be a table.", f"Write it as [{key}].")
    return table


def _constants(table: Mapping[str, Any], where: str) -> dict[str, float]:
    """The constants of a section; those of one trainer stand in a table of its name and are flattened."""
    found: dict[str, float] = {}
    for key, value in _table(table, "constants", where).items():
        if isinstance(value, Mapping):
            found.update({f"{key}.{name}": _number(x, f"{key}.{name}", where) for name, x in value.items()})
        else:
            found[key] = _number(value, key, where)
    return found


def _number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key} in {where} must be a number, not {value!r}.", "Correct or remove that line.")
    return float(value)


def _laid_over(mine: Calibration, shipped: Calibration) -> Calibration:
    def first(a: float | None, b: float | None) -> float | None:
        return b if a is None else a

    return Calibration(
        name=mine.name,
        source=mine.source or shipped.source,
        fitted_at=mine.fitted_at,
        memory={**shipped.memory, **mine.memory},
        timing={**shipped.timing, **mine.timing},
        memory_error=first(mine.memory_error, shipped.memory_error),
        memory_rows=mine.memory_rows or shipped.memory_rows,
        time_error=first(mine.time_error, shipped.time_error),
        time_rows=mine.time_rows or shipped.time_rows,
        here=True,
    )


def _shipped_for(node: Node, cluster: str | None) -> Calibration:
    files = _shipped(data_dir("profiles") / "clusters")
    for data in files:
        if cluster and data.get("name") == cluster:
            return _build(data, f"profiles/clusters/{cluster}.toml")
    for data in files:
        if node.id in data.get("nodes", ()):
            return _build(data, f"profiles/clusters/{data['name']}.toml")
    for data in files:
        if data.get("gpu") == node.gpu.id:
            return _build(data, f"profiles/clusters/{data['name']}.toml")
    return Calibration()


@lru_cache(maxsize=4)
def _shipped(folder: Path) -> tuple[Mapping[str, Any], ...]:
    return tuple(toml.load(path) for path in sorted(folder.glob("*.toml")))
