"""Owns `gpt-tune --auto`: the wizard with every default, for scripts."""

from __future__ import annotations

from gpt_tune import clusters
from gpt_tune.errors import UserError
from gpt_tune.workflows import choices, launch
from tui.plain.flow import first_draft


def run_auto(profile: str | None, dry_run: bool, as_json: bool) -> int:
    """Take the defaults and submit, or only show what would be submitted; the exit code."""
    from tui.cli.output import say
    from tui.cli.submission import report_dry_run, report_submitted

    draft = first_draft(profile)
    if draft.trouble and profile is None:
        # Nobody is there to ask whether this machine will do instead.
        for error in clusters.silent().values():
            raise error
    name = choices.needs_cluster(draft)
    if name is not None:
        draft = choices.load_cluster(draft, name)
    if why := choices.why_check(draft):
        say(why)
    for problem in choices.problems(draft):
        raise UserError(problem.text, "Answer it with `gpt-tune --plain`, or in a profile.")
    ready = launch.preview(draft)
    if dry_run:
        return report_dry_run(ready, as_json)
    return report_submitted(launch.submit(ready), ready.warnings, as_json)
