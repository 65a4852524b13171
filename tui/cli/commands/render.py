"""Owns `gpt-tune render`: every file of a job on disk, nothing submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING, UserError
from gpt_tune.resources import path_of
from tui.cli.options import json_option, set_option
from tui.cli.output import emit_json, say, show

if TYPE_CHECKING:
    from gpt_tune.profiles.schema import Profile


@click.command(
    help="Write every file of a job into a folder; nothing is submitted. With --diff or --check: write nothing, and "
    "show what differs from an earlier run, or what lint finds."
)
@click.argument("profile")
@click.option("--out", default=None, help="Folder to write into; default: ./PROFILE.")
@set_option
@click.option(
    "--diff",
    "earlier",
    default=None,
    metavar="RUN",
    help="What differs from this run's files (an ID, or `last` for the profile's last run).",
)
@click.option("--check", is_flag=True, help="What lint finds in the files.")
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
@json_option
def command(
    profile: str,
    out: str | None,
    changes: tuple[str, ...],
    earlier: str | None,
    check: bool,
    force: bool,
    as_json: bool,
) -> int:
    from gpt_tune.profiles import store

    if earlier is not None or check:
        if out is not None or force:
            raise click.UsageError("--diff and --check write nothing.", click.get_current_context())
        return _compared(store.load_layered(profile, changes).profile, earlier, check, as_json)
    from gpt_tune import rendering
    from gpt_tune.schedulers.local_files import LocalFiles
    from gpt_tune.workflows.offline import prepare_anywhere

    store.find(profile)  # a wrong name is said before anything about a folder
    folder = path_of(out or Path(profile).stem).absolute()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file.", "Give a folder with --out.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UserError(f"{folder} is not empty.", "Give another folder with --out, or --force.")
    ready = prepare_anywhere(store.load_layered(profile, changes).profile, str(folder))
    rendering.write(LocalFiles(), str(folder), ready.rendered.files, group=bool(ready.spec.site.group))
    if as_json:
        listed = [
            {"path": f.path, "bytes": len(f.content), "executable": f.executable}
            for f in ready.rendered.files
        ]
        script = str(folder / ready.rendered.script)
        emit_json({"schema": "gpt-tune/render/1", "out": str(folder), "script": script, "render": listed})
        return EXIT_DONE
    for warning in ready.warnings:
        say(f"note: {warning}")
    for file in ready.rendered.files:
        show(f"{folder / file.path}  {len(file.content)} bytes")
    return EXIT_DONE


def _compared(profile: Profile, earlier: str | None, check: bool, as_json: bool) -> int:
    """What differs from an earlier run, and what lint finds; exit 1 when it finds anything."""
    from gpt_tune.ledger import Ledger
    from gpt_tune.workflows import differences, file_findings
    from gpt_tune.workflows.offline import prepare_anywhere

    ledger = Ledger.open()
    record = None if earlier is None else differences.chosen_run(ledger, profile, earlier)
    folder = record.run_dir if record else str(path_of(profile.name or "job").absolute())
    ready = prepare_anywhere(profile, folder)
    difference = differences.beside_run(ready.spec, ready.rendered, record) if record else None
    found = file_findings.findings(ready.spec, ready.rendered) if check else ()
    if as_json:
        emit_json(
            {
                "schema": "gpt-tune/render/1",
                "out": None,
                "render": [],
                "difference": differences.to_json(difference) if difference else None,
                "findings": [
                    {"file": f.file, "line": f.line, "rule": f.rule, "severity": f.severity, "message": f.message,
                     "fix": f.fix}
                    for f in found
                ],
            }
        )  # fmt: skip
        return EXIT_FINDING if found else EXIT_DONE
    if difference is not None:
        for line in differences.as_text(difference).splitlines():
            show(line)
        changed = difference.changed
        say(f"beside {difference.run_id}: {differences.words(changed) if changed else 'the same files'}")
    for finding in found:
        show(f"{finding.file}:{finding.line}: {finding.severity}: {finding.message} [{finding.rule}]")
    if check:
        say(f"lint: {file_findings.words(found)}")
    return EXIT_FINDING if found else EXIT_DONE
