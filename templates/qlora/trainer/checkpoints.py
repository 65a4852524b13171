"""Which checkpoint a start continues from. Plain Python: it needs no library.

A checkpoint counts only with the mark that this program writes last: a job killed while it saves leaves a
folder that looks whole. DeepSpeed's and plain checkpoints cannot be read by each other.
"""

import json
import re
from pathlib import Path

MARK = "complete.json"
NONE, AUTO = "none", "auto"


class CheckpointError(Exception):
    """A checkpoint that cannot be continued from; the text is one sentence."""


def folders(output):
    """Checkpoint folders, the newest first."""
    numbered = []
    for path in Path(output).glob("checkpoint-*"):
        match = re.fullmatch(r"checkpoint-(\d+)", path.name)
        if match and path.is_dir():
            numbered.append((int(match.group(1)), path))
    return [path for _, path in sorted(numbered, reverse=True)]


def write_mark(folder, strategy, ranks, step):
    """Say that a checkpoint is whole. Renamed into place, so that it is never half there."""
    data = {"strategy": strategy, "ranks": ranks, "step": step}
    temporary = Path(folder) / f".{MARK}"
    temporary.write_text(json.dumps(data) + "\n", encoding="utf-8")
    temporary.replace(Path(folder) / MARK)


def read_mark(folder):
    """What a checkpoint says of itself; None when it is not whole."""
    folder = Path(folder)
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
        state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(mark, dict) or state.get("global_step") != mark.get("step"):
        return None
    weights = [folder / n for n in ("adapter_model.safetensors", "adapter_model.bin")]
    return mark if any(w.is_file() and w.stat().st_size for w in weights) else None


def kind(folder):
    """ "deepspeed" or "plain", by what lies in the folder."""
    folder = Path(folder)
    partitioned = any(folder.glob("global_step*/*optim_states.pt")) or (folder / "latest").is_file()
    return "deepspeed" if partitioned else "plain"


def choose(output, resume, strategy, ranks):
    """The folder to continue from, or None; and sentences for the log.

    resume: auto (the newest whole one), none, or a checkpoint's folder.
    """
    if resume == NONE:
        return None, []
    if resume != AUTO:
        return _named(Path(resume), strategy, ranks)
    folder, mark, notes = newest(output)
    if folder is not None:
        _check(folder, mark, strategy, ranks)
    return folder, notes


def newest(output):
    """The newest whole checkpoint and its mark, or None twice; and sentences about those passed over."""
    notes = []
    for folder in folders(output):
        mark = read_mark(folder)
        if mark is not None:
            return folder, mark, notes
        notes.append(f"{folder.name} is not whole (the job ended while it was saved): passed over")
    return None, None, notes


def adapter_in(earlier):
    """The newest whole checkpoint of an earlier run, whose adapter a new one starts from."""
    folder, _, _ = newest(earlier)
    if folder is None:
        raise CheckpointError(f"There is no whole checkpoint in {earlier} to take an adapter from.")
    return folder


def _named(folder, strategy, ranks):
    if not folder.is_dir():
        raise CheckpointError(f"There is no checkpoint {folder}.")
    mark = read_mark(folder)
    if mark is None and not (folder / "trainer_state.json").is_file():
        raise CheckpointError(f"{folder} is not a whole checkpoint: it has no trainer_state.json.")
    _check(folder, mark or {}, strategy, ranks)
    return folder, [] if mark else [f"{folder.name} has no mark of being whole; taken because it was named"]


def _check(folder, mark, strategy, ranks):
    saved = mark.get("strategy") or {"deepspeed": "zero2 or zero3", "plain": "ddp"}[kind(folder)]
    same_kind = (kind(folder) == "deepspeed") == strategy.startswith("zero")
    if not same_kind or (mark.get("strategy") and strategy.startswith("zero") and saved != strategy):
        raise CheckpointError(
            f"{folder.name} was saved with strategy {saved}, and this job runs {strategy}, which cannot read it. "
            f"Set STRATEGY={saved.split()[0]}, or RESUME=weights to go on from its adapter with a new optimizer, "
            "or RESUME=none to start over."
        )
    before = mark.get("ranks")
    if strategy.startswith("zero") and before and before != ranks:
        raise CheckpointError(
            f"{folder.name} was saved by {before} ranks, and ZeRO's optimizer can only be read by as many; this job "
            f"has {ranks}. Use {before} GPUs, or RESUME=weights to go on from its adapter with a new optimizer."
        )
