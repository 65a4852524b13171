"""Owns `gpt-tune render`: every file of a job on disk, nothing submitted."""

from __future__ import annotations

from pathlib import Path

import click

from gpt_tune.errors import EXIT_DONE, UserError
from gpt_tune.resources import path_of
from tui.cli.options import json_option, set_option
from tui.cli.output import emit_json, say, show


@click.command(help="Write every file of a job into a folder; nothing is submitted.")
@click.argument("profile")
@click.option("--out", default=None, help="Folder to write into; default: ./PROFILE.")
@set_option
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
@json_option
def command(profile: str, out: str | None, changes: tuple[str, ...], force: bool, as_json: bool) -> int:
    from gpt_tune import rendering
    from gpt_tune.profiles import store
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
