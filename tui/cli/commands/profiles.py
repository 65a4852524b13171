"""Owns `gpt-tune profiles`: list, show, save, edit, remove, import, export."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_tune.errors import UserError
from gpt_tune.profiles import store
from gpt_tune.profiles.build import to_dict
from gpt_tune.resources import existing_file, path_of
from tui.cli.options import json_option, set_option
from tui.cli.output import emit_json, say, show, show_table

if TYPE_CHECKING:
    from gpt_tune.profiles.schema import Profile

SCHEMA = "gpt-tune/profiles/1"


@click.group(invoke_without_command=True, help="Saved choices of a run. Without a subcommand: the list.")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int:
    if ctx.invoked_subcommand is None:
        return _list(as_json)
    ctx.find_root().obj = {"json": as_json}
    return 0


@command.command("list", help="Your profiles and the shipped starters.")
@json_option
def list_(as_json: bool) -> int:
    return _list(as_json)


def _list(as_json: bool) -> int:
    entries = store.entries()
    if as_json:
        items = [
            {
                "name": e.name,
                "kind": e.kind,
                "path": str(e.path),
                "recipe": e.recipe,
                "description": e.description,
            }
            for e in entries
        ]
        emit_json({"schema": SCHEMA, "profiles": items})
    else:
        rows = [(e.name, e.kind, e.recipe, e.description) for e in entries]
        show_table(("name", "kind", "recipe", "what for"), rows)
    return 0


@command.command("show", help="Every setting with where it comes from; --toml prints the file instead.")
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Also settings left at their default.")
@click.option("--origins", is_flag=True, help="Every setting and its origin; with --json as a list too.")
@click.option("--toml", "as_toml", is_flag=True, help="The profile's file as it is kept.")
@set_option
@json_option
def show_(
    name: str, everything: bool, origins: bool, as_toml: bool, changes: tuple[str, ...], as_json: bool
) -> int:
    from gpt_tune.workflows.origins import table, words_of

    if as_toml:
        sys.stdout.write(store.export(name, everything))
        return 0
    layered = store.load_layered(name, changes)
    settings = table(layered.profile, layered.origins, everything or origins)
    if as_json:
        item: dict[str, Any] = {
            "name": name,
            "profile": to_dict(layered.profile, everything=True),
            "origins": dict(layered.origins),
        }
        if origins:
            item["settings"] = [{"key": s.key, "value": s.value, "origin": s.origin} for s in settings]
        emit_json({"schema": SCHEMA, "profiles": [item]})
        return 0
    show_table(("setting", "value", "from"), [(s.key, words_of(s.value), s.origin) for s in settings])
    return 0


@command.command(help="Save a profile of your own as NAME, from --from with --set changes.")
@click.argument("name")
@click.option("--from", "source", default=None, help="Profile to start from; default: the defaults.")
@click.option("--from-run", "run", default=None, metavar="ID", help="Run whose choices and layout to keep.")
@click.option("--overwrite", is_flag=True, help="Replace a profile of that name.")
@set_option
@json_option
def save(
    name: str,
    source: str | None,
    run: str | None,
    overwrite: bool,
    changes: tuple[str, ...],
    as_json: bool,
) -> int:
    from gpt_tune.profiles.schema import Profile

    if source and run:
        raise click.UsageError("Give --from or --from-run, not both.", click.get_current_context())

    if existing_file(store.own_path(name)) and not overwrite and source != name:
        raise UserError(f"A profile {name!r} already exists.", "Choose another name, or --overwrite.")
    base = _of_run(run) if run else store.load(source) if source else Profile()
    return _saved(store.save(store.with_settings(base, changes), name), name, as_json)


def _of_run(run: str) -> Profile:
    """The choices of a run, with its layout."""
    from gpt_tune import jobs
    from gpt_tune.workflows import choices

    return choices.profile_of(choices.from_run(jobs.find(run)))


@command.command(help="Change a profile with $EDITOR, or with --set; it is checked before it is kept.")
@click.argument("name")
@set_option
@json_option
def edit(name: str, changes: tuple[str, ...], as_json: bool) -> int:
    text = store.export(name, everything=not changes and not existing_file(store.own_path(name)))
    if not changes:
        edited = click.edit(text, extension=".toml")
        if edited is None:
            say("Nothing changed.")
            return 0
        text = edited
    try:
        profile = store.from_text(text, name)
    except UserError as error:
        raise UserError(error.message, f"{error.hint} Nothing was saved{_kept(name, text)}.") from error
    return _saved(store.save(store.with_settings(profile, changes), Path(name).stem), name, as_json)


def _kept(name: str, text: str) -> str:
    """Keep what was typed although it is no profile: nobody writes it twice. A secret is kept nowhere."""
    from gpt_tune.profiles.files import write_private
    from gpt_tune.profiles.secrets import refuse_secrets
    from gpt_tune.resources import state_dir

    try:
        refuse_secrets({"text": re.sub(r"[ \t]*=[ \t]*", "=", text)}, f"profile {name}")
    except UserError:
        return ""
    path = write_private(state_dir() / "edits" / f"{Path(name).stem}.toml", text)
    return f"; what you wrote is in {path}"


@command.command(help="Delete a profile of your own.")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> int:
    store.remove(name)
    if as_json:
        emit_json({"schema": SCHEMA, "profiles": [], "removed": name})
    else:
        say(f"Removed {name}.")
    return 0


@command.command("import", help="Keep a colleague's file as a profile of yours.")
@click.argument("path")
@click.option("--name", default=None, help="Name to keep it under; default: the one it has.")
@click.option("--overwrite", is_flag=True, help="Replace a profile of that name.")
@json_option
def import_(path: str, name: str | None, overwrite: bool, as_json: bool) -> int:
    kept = store.import_(path, name, overwrite)
    return _saved(kept, kept.stem, as_json)


@command.command(help="One file for a colleague, on stdout or into --out.")
@click.argument("name")
@click.option("--out", default=None, help="Write here instead of stdout.")
@click.option("--all", "everything", is_flag=True, help="Also settings left at their default.")
@json_option
def export(name: str, out: str | None, everything: bool, as_json: bool) -> int:
    text = store.export(name, everything)
    if out:
        from gpt_tune.profiles.files import write_private

        return _saved(write_private(path_of(out), text), name, as_json)
    if as_json:
        emit_json({"schema": SCHEMA, "profiles": [{"name": name, "toml": text}]})
    else:
        sys.stdout.write(text)
    return 0


def _saved(path: Path, name: str, as_json: bool) -> int:
    if as_json:
        emit_json({"schema": SCHEMA, "profiles": [{"name": name, "path": str(path)}]})
    else:
        show(str(path))
    return 0
