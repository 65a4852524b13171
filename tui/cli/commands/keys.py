"""Owns `gpt-tune keys`: what the keys of the wizard are called, for those who want others."""

from __future__ import annotations

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show_table


@click.command(
    help="Every action of the wizard that has a key, with its name and key. Other keys: settings.toml beside the "
    'profiles, [keys], "monitor.cancel-job" = "ctrl+x". Exit code 2 when a name or key there is wrong.'
)
@json_option
def command(as_json: bool) -> int:
    from tui import keys, settings

    mine = keys.keymap(settings.load().keys, str(settings.path_of()))
    found = keys.rows(mine)
    if as_json:
        rows = [
            {"name": n.name, "keys": n.keys.split(","), "what": n.what, "yours": n.name in mine}
            for n in found
        ]
        emit_json({"schema": "gpt-tune/keys/1", "keys": rows})
        return EXIT_DONE
    show_table(
        ("name", "key", "what"),
        [(n.name, n.keys + (" (yours)" if n.name in mine else ""), n.what) for n in found],
    )
    say(f'Others: [keys] in {settings.path_of()}, "NAME" = "KEY".')
    return EXIT_DONE
