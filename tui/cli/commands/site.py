"""Owns `gpt-tune site`: what a cluster needs to know once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gpt_tune.errors import SchedulerError
from gpt_tune.profiles import settings, sites
from gpt_tune.profiles.build import to_dict, value_at
from gpt_tune.profiles.schema import Site
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show, show_table

SCHEMA = "gpt-tune/site/1"
_SSH_KEYS = ("ssh", "site.ssh")


@click.command(help="Show or change the site of a cluster: account, partition, run folder, image, mounts.")
@click.argument("name", required=False)
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change and keep a value; repeatable."
)
@click.option("--exclude", "out", multiple=True, metavar="NODE", help="Leave a node out of jobs; repeatable.")
@click.option("--why", default="by hand", help="With --exclude: the reason to keep with it.")
@click.option("--include", "back", multiple=True, metavar="NODE", help="Take a node back in; repeatable.")
@click.option("--save", "keep", is_flag=True, help="Keep what was guessed.")
@json_option
def command(
    name: str | None,
    changes: tuple[str, ...],
    out: tuple[str, ...],
    why: str,
    back: tuple[str, ...],
    keep: bool,
    as_json: bool,
) -> int:
    host = next(
        (c.partition("=")[2].strip() for c in reversed(changes) if c.partition("=")[0] in _SSH_KEYS), ""
    )
    site, known = _site(name, host)
    if out or back:
        from gpt_tune.workflows import exclude

        for node in out:
            site, known = exclude.exclude(exclude.Exclusion(site.cluster, node, why)), True
        for node in back:
            site, known = exclude.include(site.cluster, node), True
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise click.UsageError(
                f"--set {change!r} has no '='. Write KEY=VALUE.", click.get_current_context()
            )
        site = settings.with_value(site, key.strip().removeprefix("site."), value.strip(), "--set")
    if changes or keep:
        say(f"Kept in {sites.save(site)}.")
        known = True
    problems = sites.problems(site)
    if as_json:
        emit_json(
            {
                "schema": SCHEMA,
                "site": [{**to_dict(site, everything=True), "kept": known, "problems": problems}],
            }
        )
        return 0
    _show(site, known)
    for sentence in problems:
        say(f"missing: {sentence}")
    return 0


def _site(name: str | None, host: str) -> tuple[Site, bool]:
    """The kept site of a cluster, or a guess from looking at it. Without a name: the cluster found here.

    host: the login node of a cluster that is about to be reached by ssh.
    """
    if name is None:
        from gpt_tune import clusters

        for error in clusters.silent().values():
            raise error
        name = clusters.available()[0]
    kept = sites.load(name)
    if kept is not None:
        return replace(kept, cluster=name), True
    if host:
        from gpt_tune.workflows import remote_site

        try:
            return remote_site.guess(name, host), False
        except SchedulerError as error:  # what is given on the command line may be enough
            say(f"note: {error}")
            return Site(cluster=name, scheduler="slurm"), False
    from gpt_tune import clusters

    return sites.guess(clusters.discover(name)), False


def _show(site: Site, known: bool) -> None:
    state = "kept" if known else "guessed: keep it with --save, or change it with --set KEY=VALUE"
    show(f"{site.cluster} ({state})")
    rows = [(key, _words(value_at(site, key))) for key in settings.known_keys(Site) if key != "cluster"]
    show_table(("setting", "value"), rows)


def _words(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(str(v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return str(value)
