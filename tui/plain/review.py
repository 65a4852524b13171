"""Owns the last plain page: what will happen, what it costs, every file, and the choice to do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger
from gpt_tune.profiles import store
from gpt_tune.words import gpu_hours_words, seconds_words
from gpt_tune.workflows import choices, launch
from gpt_tune.workflows.draft import Draft
from tui.cli.table import clean
from tui.plain.ask import Asker, Item

if TYPE_CHECKING:
    from gpt_tune.workflows.launch import Launch

SUBMIT, WRITE, FILES, CHECK, EDIT, SETTINGS, SAVE, BACK, QUIT = (
    "submit", "write", "files", "check", "edit", "settings", "save", "back", "quit"
)  # fmt: skip


def review(draft: Draft, ask: Asker, dry_run: bool) -> tuple[Draft, int | None]:
    """The draft (edits may have been added) with the exit code, or with None to go back."""
    ask.say("\nReview")
    for label, words in choices.summary(draft).parts:
        ask.say(f"  {label}: {clean(words)}")
    problems = choices.problems(draft)
    for problem in problems:
        ask.say(f"  Not ready: {clean(problem.text)}")
    if not problems:
        _say_cost(draft, ask)
    items = _items(draft, bool(problems), dry_run)
    while True:
        answer = ask.menu("What now?", items, items[0].value if not problems else BACK)
        if answer in (BACK, QUIT):
            return draft, None if answer == BACK else 0
        try:
            if answer == SUBMIT:
                return draft, _show_only(draft, ask) if dry_run else _submit(draft, ask)
            draft = _PAGES[answer](draft, ask)
        except UserError as error:
            ask.say(clean(str(error)))


def _items(draft: Draft, stuck: bool, dry_run: bool) -> list[Item]:
    """What can be done here, the likeliest first; nothing can be submitted where no cluster is."""
    items: list[Item] = []
    if not stuck and not draft.plan_only:
        items.append(Item(SUBMIT, "Show the script only" if dry_run else "Submit"))
    if not stuck:
        items += [
            Item(WRITE, "Write the files into a folder"),
            Item(FILES, "Show a file"),
            Item(CHECK, "Check the files, and compare them with the last run"),
            Item(EDIT, "Edit a file"),
        ]
    return [
        *items,
        Item(SETTINGS, "Show every setting and where it comes from"),
        Item(SAVE, "Save as a profile"),
        Item(BACK, "Back"),
        Item(QUIT, "Quit without submitting"),
    ]


def _say_cost(draft: Draft, ask: Asker) -> None:
    try:
        ready = launch.preview(draft)
    except UserError as error:
        ask.say(f"  Not ready: {clean(str(error))}")
        return
    takes = "unknown" if ready.seconds is None else f"about {seconds_words(ready.seconds)}"
    cost = ready.rate or f"{gpu_hours_words(ready.gpu_hours)}; time: {takes}"
    ask.say(f"  cost: {cost}")
    for path, why in ready.lost:
        ask.say(f"  Your change of {clean(path)} is left out: {why}.")
    if ready.edited:
        ask.say(f"  edited by you: {', '.join(ready.edited)}")


def _write(draft: Draft, ask: Asker) -> Draft:
    from gpt_tune.workflows import offline

    profile = draft.profile
    name = f"./{profile.name or f'{profile.recipe}-job'}"
    folder = ask.text("Folder", name, "A new folder; nothing is submitted.", offline.folder_problem)
    paths = offline.write_out(draft, folder)
    ask.say(
        f"{len(paths)} files are in {clean(paths[0].rpartition('/')[0])}. On the cluster: sbatch job.sbatch there."
    )
    return draft


def _file(draft: Draft, ask: Asker, title: str) -> tuple[Launch, str]:
    """The job, and one of its files that the user chose."""
    ready = launch.preview(draft)
    for warning in ready.warnings:
        ask.say(f"Note: {clean(warning)}")
    script = ready.rendered.script
    paths = sorted((f.path for f in ready.rendered.files), key=lambda p: (p != script, p))
    items = [Item(p, f"{p} (edited by you)" if p in ready.edited else p) for p in paths]
    return ready, ask.menu(title, items, script)


def _show_file(draft: Draft, ask: Asker) -> Draft:
    ready, path = _file(draft, ask, "Which file?")
    content = next(f.content for f in ready.rendered.files if f.path == path)
    ask.say(clean(content.decode("utf-8", "replace"), keep="\n\t"))
    return draft


def _check(draft: Draft, ask: Asker) -> Draft:
    """Lint's findings, then what differs from the last run of these choices."""
    from gpt_tune.workflows import differences, file_findings, reviewing

    ready = launch.preview(draft)
    checked = reviewing.check(ready, Ledger.open())
    for found in checked.findings:
        ask.say(clean(f"{found.file} line {found.line}: {found.severity}: {found.message} {found.fix}"))
    ask.say(f"lint: {file_findings.words(checked.findings)}")
    if checked.compared is None:
        ask.say("There is no earlier run of these choices to compare with.")
    elif checked.difference is None:
        ask.say(clean(checked.trouble))
    else:
        changed = checked.difference.changed
        ask.say(clean(differences.as_text(checked.difference), keep="\n\t").rstrip())
        words = differences.words(changed) if changed else "the same files"
        ask.say(f"beside {checked.compared.name} {checked.compared.run_id}: {words}")
    return draft


def _edit(draft: Draft, ask: Asker) -> Draft:
    from gpt_tune.workflows import edits
    from tui import editor

    ready, path = _file(draft, ask, "Edit which file?")
    before = edits.text_of(next(f for f in ready.rendered.files if f.path == path))
    after = editor.edit(path, before, editor.command())
    if after == before:
        ask.say("Nothing was changed.")
        return draft
    made = launch.generated(draft)
    base = edits.text_of(next(f for f in made.rendered.files if f.path == path))
    # In the names of the run that was edited: each rendering has its own.
    base = edits.names_of(made.spec).into(edits.names_of(ready.spec), base)
    edit = edits.edited(ready.spec, ready.rendered, path, after, base)
    ask.say(f"{path} is edited by you from now on.")
    return replace(draft, edits={**draft.edits, path: edit})


def _settings(draft: Draft, ask: Asker) -> Draft:
    from gpt_tune.workflows.origins import words_of

    for setting in choices.settings_of(draft):
        ask.say(clean(f"  {setting.key}: {words_of(setting.value)} ({setting.origin})"))
    return draft


def _save(draft: Draft, ask: Asker) -> Draft:
    first = draft.profile.name or store.name_for(draft.base) or "mine"
    name = ask.text("Name of the profile", first, "Letters, digits, . _ -", _name_problem)
    if store.is_own(name) and not ask.yes(f"You have a profile {name}. Replace it?", True):
        return draft
    ask.say(f"Saved in {store.save(choices.profile_of(draft), name)}.")
    return draft


def _name_problem(name: str) -> str | None:
    try:
        store.check_name(name)
    except UserError as error:
        return clean(str(error))
    return None


_PAGES: dict[str, Callable[[Draft, Asker], Draft]] = {
    WRITE: _write,
    FILES: _show_file,
    CHECK: _check,
    EDIT: _edit,
    SETTINGS: _settings,
    SAVE: _save,
}


def _show_only(draft: Draft, ask: Asker) -> int:
    """The job script as it would be written."""
    ready = launch.preview(draft)
    for warning in ready.warnings:
        ask.say(f"Note: {clean(warning)}")
    script = next(f for f in ready.rendered.files if f.path == ready.rendered.script)
    ask.say(clean(script.content.decode("utf-8", "replace"), keep="\n\t"))
    return 0


def _submit(draft: Draft, ask: Asker) -> int:
    ready = launch.preview(draft)
    for warning in ready.warnings:
        ask.say(f"Note: {clean(warning)}")
    record = launch.submit(ready)
    ask.say(f"Submitted: job {', '.join(record.job_ids)}, run {record.run_id}.")
    ask.say(f"Run folder: {record.run_dir}")
    if ask.yes("Follow it now?", True):
        from tui.cli.follow import follow_run

        return follow_run(record.run_id)
    ask.say(f"Follow it later with: gpt-tune watch {record.run_id}")
    return 0
