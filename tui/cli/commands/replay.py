"""Owns `gpt-tune replay`: a recorded run in the monitor, or as lines; and making a recording."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, UserError
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show_table
from tui.cli.wizard import cannot_draw

if TYPE_CHECKING:
    from gpt_tune.ledger import RunRecord
    from gpt_tune.workflows.replay import Tape
    from gpt_tune.workflows.replay_format import Recording

SCHEMA = "gpt-tune/replay/1"
POLL_SECONDS = 0.2


@click.command(
    help="Play a recorded run in the monitor: a recording (file or folder), a shipped one's name, an ended run's id or "
    "a log file; without a name the shipped run of one H200. Space pauses, [ and ] change the speed, , and . seek, "
    "0 to 9 jump. With --json, or without a terminal: the events of `watch`, at once unless --speed is given."
)
@click.argument("recording", required=False)
@click.option("--speed", type=float, default=None, help="Times as fast as it was: 0.5, 10.")
@click.option(
    "--record",
    nargs=2,
    metavar="ID OUT",
    default=None,
    help="Make the recording OUT of an ended run or a log file.",
)
@click.option(
    "--strip", is_flag=True, help="With --record: replace user, home, host and run folder by neutral words."
)
@click.option("--list", "lists", is_flag=True, help="The recordings that come with gpt-tune.")
@json_option
def command(
    recording: str | None,
    speed: float | None,
    record: tuple[str, str] | None,
    strip: bool,
    lists: bool,
    as_json: bool,
) -> int:
    from gpt_tune.workflows import replay

    if record is not None and (recording or speed is not None or lists):
        raise click.UsageError("--record goes with --strip and --json only.", click.get_current_context())
    if strip and record is None:
        raise click.UsageError("--strip goes with --record.", click.get_current_context())
    if record is not None:
        return _record(*record, strip, as_json)
    if lists:
        return _list(as_json)
    if speed is not None:
        replay.check_speed(speed)
    found = replay.find(recording)
    if not as_json and sys.stdin.isatty() and sys.stdout.isatty() and not cannot_draw(os.environ):
        from tui.app import run_replay

        return run_replay(replay.Tape(found, speed or 1.0))
    return play(found, speed, as_json)


def play(recording: Recording, speed: float | None, as_json: bool) -> int:
    """Say a recording's events: at its own pace times `speed`, or one after the other without waiting."""
    from gpt_tune.workflows import replay
    from tui.cli.follow import exit_code_of, teller_of

    tape = replay.Tape(recording, speed or 1.0)
    tape.pause(speed is None)
    watch = replay.watch_of(tape)
    teller = teller_of(None, as_json, SCHEMA, tape.now)
    for _ in _moments(tape, speed):
        over = tape.over
        update = watch.poll()
        teller.tell(update)
        sys.stdout.flush()
        if over and not update.behind and update.history >= 1.0:
            break
    teller.end(update, watch)
    return exit_code_of(update)


def _moments(tape: Tape, speed: float | None) -> Iterator[None]:
    """Go on, each turn, to the next moment: by moving the tape there, or by waiting a little."""
    for moment in tape.moments() if speed is None else ():
        tape.seek(moment)
        yield
    while True:  # at the end: until all of it has been read
        if speed is not None:
            time.sleep(POLL_SECONDS)
        yield


def _record(name: str, out: str, strip: bool, as_json: bool) -> int:
    from gpt_tune.resources import path_of
    from gpt_tune.workflows import replay, replay_format, replay_record

    target = path_of(out)
    if replay_format.file_of(target).exists():
        raise UserError(
            f"{replay_format.file_of(target)} exists already.", "Remove it, or name another file."
        )
    made = replay.find(name)
    if strip:
        made = replay_record.without_names(made, _run_of(name))
    path = replay_format.write(made, target)
    if as_json:
        facts = made.facts
        emit_json(
            {"schema": SCHEMA, "recording": str(path), "seconds": facts.seconds, "lines": len(made.lines)}
        )
    else:
        say(f"Wrote {path}: {len(made.lines):,} lines over {made.facts.seconds:,.0f} s.")
        say(f"Play it: gpt-tune replay {path}")
    return EXIT_DONE


def _run_of(name: str) -> RunRecord | None:
    """The ledger's run, when the name is of one."""
    from gpt_tune import jobs

    try:
        return None if Path(name).exists() else jobs.find(name)
    except UserError:
        return None


def _list(as_json: bool) -> int:
    from gpt_tune.workflows import replay, replay_format

    found = {name: replay_format.read(path).facts for name, path in replay.shipped().items()}
    if as_json:
        rows = [{"name": n, "about": f.about, "seconds": f.seconds} for n, f in found.items()]
        emit_json({"schema": SCHEMA, "replay": rows})
    else:
        show_table(("name", "seconds", "what"), [(n, f.seconds, f.about) for n, f in found.items()], "1")
    return EXIT_DONE
