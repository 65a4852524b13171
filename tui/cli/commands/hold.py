"""Owns `gpt-tune hold`: keep a waiting job from starting."""

from __future__ import annotations

import click

from tui.cli.options import json_option
from tui.cli.submission import report_changed


@click.command(help="Keep a waiting job from starting, until `gpt-tune release`.")
@click.argument("identity", metavar="ID")
@json_option
def command(identity: str, as_json: bool) -> int:
    from gpt_tune.jobs import control

    return report_changed("hold", control.hold(identity), as_json)
