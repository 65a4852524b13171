"""Owns `gpt-tune containers`: what container images are made of, and the files that build one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING, UserError, shown
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table

_SCHEMA = "gpt-tune/containers/1"


@click.command(
    help="Container images for training jobs. Without a name: the list. With one: what is in it. "
    "`containers render NAME` writes a Dockerfile, the enroot build job and a README; versions that are known to "
    "fail together are refused.",
    epilog="Keys of --set: base, base_digest, efa, nccl (a version or base), gdrcopy, nodes, network (efa or none), "
    "name, tag, sqsh, builder, time_limit, python.NAME; of acs: release, vpc_region, image, sqsh, time_limit.",
)
@click.argument("words", nargs=-1, metavar="[render] [NAME]")
@click.option("--out", default=None, help="render: folder to write into; default: ./NAME.")
@click.option("--force", is_flag=True, help="render: write into a folder that is not empty.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Another version; repeatable.")
@json_option
def command(
    words: tuple[str, ...], out: str | None, force: bool, changes: tuple[str, ...], as_json: bool
) -> int:
    rendering, name = _asked(words)
    if not rendering and (out is not None or force):
        raise click.UsageError(
            "--out and --force belong to `containers render NAME`.", click.get_current_context()
        )
    if rendering:
        return _render(name, out, force, changes, as_json)
    if name:
        return _show(name, changes, as_json)
    if changes:
        raise click.UsageError("--set needs the name of a container.", click.get_current_context())
    return _list(as_json)


def _asked(words: Sequence[str]) -> tuple[bool, str]:
    """Whether files are wanted, and of which container."""
    rendering = bool(words) and words[0] == "render"
    names = words[1:] if rendering else words
    if len(names) > 1:
        raise click.UsageError(f"One name at a time, not {len(names)}.", click.get_current_context())
    if rendering and not names:
        raise click.UsageError(
            "Name a container to render, for example pretraining.", click.get_current_context()
        )
    return rendering, names[0] if names else ""


def _list(as_json: bool) -> int:
    from gpt_tune.containers import shelf

    entries = [shelf.take(name) for name in shelf.names()]
    if as_json:
        emit_json({"schema": _SCHEMA, "containers": [e.to_json() for e in entries]})
        return EXIT_DONE
    rows = [(e.name, e.base, e.efa or None, e.nccl or None, e.title) for e in entries]
    show_table(("name", "base", "EFA", "NCCL", "what"), rows)
    say("What is in one: gpt-tune containers NAME. Its files: gpt-tune containers render NAME --out DIR.")
    return EXIT_DONE


def _show(name: str, changes: Sequence[str], as_json: bool) -> int:
    from gpt_tune.containers import shelf

    entry = shelf.take(name, changes)
    if as_json:
        emit_json({"schema": _SCHEMA, "containers": [entry.to_json()]})
    else:
        show(f"{name}: {entry.title}")
        show_table(("what", "version", "source"), [(p.what, p.version, p.source) for p in entry.parts])
        for problem in entry.problems:
            say(f"refused: {problem}")
        for note in entry.notes:
            say(f"note: {note}")
    return EXIT_FINDING if entry.problems else EXIT_DONE


def _render(name: str, out: str | None, force: bool, changes: Sequence[str], as_json: bool) -> int:
    from gpt_tune import rendering
    from gpt_tune.containers import shelf
    from gpt_tune.resources import path_of
    from gpt_tune.schedulers.local_files import LocalFiles

    entry = shelf.take(name, changes)
    folder = path_of(out or name).absolute()
    _check_folder(folder, force)
    files = entry.files(str(folder))
    rendering.write(LocalFiles(), str(folder), files)
    script = str(folder / entry.script)
    if as_json:
        listed = [{"path": f.path, "bytes": len(f.content), "executable": f.executable} for f in files]
        emit_json({"schema": "gpt-tune/render/1", "out": str(folder), "script": script, "render": listed})
        return EXIT_DONE
    for note in entry.notes:
        say(f"note: {note}")
    for file in files:
        show(f"{folder / file.path}  {len(file.content)} bytes")
    say(f"Next, on a machine of the cluster that has enroot: sbatch {rendering.quote(script)}")
    return EXIT_DONE


def _check_folder(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{shown(str(folder))} is a file.", "Give a folder with --out.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UserError(f"{shown(str(folder))} is not empty.", "Give another folder with --out, or --force.")
