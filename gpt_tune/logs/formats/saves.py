"""Owns the lines in which trainers other than Megatron say that they saved a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpt_tune.logs.formats.base import Format, Item, Line, Mark

# Each with the step it names, if it names one. Bounded, and said of a checkpoint that was written: sentences about
# how often one is to be written name a number too.
_SAVED = re.compile(
    r"\bSaving model checkpoint to .{0,400}?checkpoint-(?P<huggingface>\d{1,12})"
    r"|\bSaving model checkpoint: .{0,400}?global_step(?P<engine>\d{1,12})"
    r"|\[Torch\] Saving .{0,400}?global_step(?P<deepspeed>\d{1,12})/"
    r"|\b[Ss]aving (?:a full |an? |the )?(?:\w{1,20} )?checkpoint at step (?P<torchtitan>\d{1,12})"
    r"|\bSaving the checkpoint \(or staging"
    r"|\bAsync checkpoint save for step (?P<nemo>\d{1,12})"
    r"|\bglobal step (?P<lightning>\d{1,12}): .{0,300}?saving model to"
    r"|\bSaving checkpoint to .{0,400}?-?ba(?P<composer>\d{1,12})\b"
    r"|\bSaved checkpoint .{1,400}? @ (?P<fairseq>\d{1,12}) updates"
    r"|\bWriting checkpoint to .{1,400}?-(?P<aws>\d{1,12})steps"
    r"|\bSaving weights to .{1,400}?/(?P<nanotron>\d{1,12})/"
    r"|^checkpoint \S{1,400}?checkpoint-(?P<own>\d{1,12}) is whole"
    r"|^saving checkpoint to \S"
    r"|\b[Mm]odel checkpoint of size .{1,60} saved to"
)


class Saves(Format):
    """Checkpoints saved by trainers whose lines do not say "at iteration"."""

    name = "saves"
    triggers = (
        "Saving model checkpoint", "[Torch] Saving", "checkpoint at step ", "Saving the checkpoint (or staging",
        "Async checkpoint save", "saving model to", "Saving checkpoint to", "Saved checkpoint ",
        "Writing checkpoint to", "Saving weights to", "saving checkpoint to ", "checkpoint of size", " is whole",
    )  # fmt: skip

    def feed(self, line: Line) -> Iterable[Item]:
        match = _SAVED.search(line.text)
        if match is not None:
            yield Mark("saved", int(match.group(match.lastgroup)) if match.lastgroup else None)
