"""Owns the last plain page: what will happen, what it costs, and the choice to do it."""

from __future__ import annotations

from gpt_tune.errors import UserError
from gpt_tune.profiles import store
from gpt_tune.workflows import choices, launch
from gpt_tune.workflows.draft import Draft
from tui.plain.ask import Asker, Item


def review(draft: Draft, ask: Asker, dry_run: bool) -> int | None:
    """The exit code, or None to go back."""
    ask.say("\nReview")
    for label, words in choices.summary(draft).parts:
        ask.say(f"  {label}: {words}")
    problems = choices.problems(draft)
    for problem in problems:
        ask.say(f"  Not ready: {problem.text}")
    items = (
        []
        if problems or draft.plan_only
        else [Item("submit", "Show the script only" if dry_run else "Submit")]
    )
    items += [Item("files", "Show the job script")] if not problems and not draft.plan_only else []
    items += [
        Item("save", "Save as a profile"),
        Item("back", "Back"),
        Item("quit", "Quit without submitting"),
    ]
    while True:
        answer = ask.menu("What now?", items, items[0].value if not problems else "back")
        if answer == "back":
            return None
        if answer == "quit":
            return 0
        if answer == "save":
            _save(draft, ask)
            continue
        try:
            if answer == "files" or dry_run:
                show_script(draft, ask)
                if answer == "submit":
                    return 0
            else:
                return _submit(draft, ask)
        except UserError as error:
            ask.say(str(error))


def _save(draft: Draft, ask: Asker) -> None:
    name = ask.text(
        "Name of the profile", draft.base or draft.profile.name or "mine", "Letters, digits, . _ -", _ok
    )
    try:
        ask.say(f"Saved in {store.save(choices.profile_of(draft), name)}.")
    except UserError as error:
        ask.say(str(error))


def _ok(name: str) -> str | None:
    return None if name else "A name is needed."


def show_script(draft: Draft, ask: Asker) -> None:
    """The job script as it would be written."""
    ready = launch.preview(draft)
    for warning in ready.warnings:
        ask.say(f"Note: {warning}")
    script = next(f for f in ready.rendered.files if f.path == ready.rendered.script)
    ask.say(script.content.decode("utf-8", "replace"))


def _submit(draft: Draft, ask: Asker) -> int:
    ready = launch.preview(draft)
    for warning in ready.warnings:
        ask.say(f"Note: {warning}")
    record = launch.submit(ready)
    ask.say(f"Submitted: job {', '.join(record.job_ids)}, run {record.run_id}.")
    ask.say(f"Run folder: {record.run_dir}")
    if ask.yes("Follow it now?", True):
        from tui.cli.follow import follow_run

        return follow_run(record.run_id)
    ask.say(f"Follow it later with: gpt-tune watch {record.run_id}")
    return 0
