"""Owns the last look before submitting: every file, what differs, what lint says, the cost; then one Enter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType

from gpt_tune.errors import UserError
from tui import editor
from tui.screens import review_lines
from tui.screens.review_lines import SETTINGS
from tui.screens.step import StepPage, error_lines
from tui.widgets.file_rows import FileRow, diff_rows, setting_rows, text_rows
from tui.widgets.fileview import FileView
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.tabs import TabRow

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.workflows.launch import Launch
    from gpt_tune.workflows.reviewing import Checked


class ReviewStep(StepPage):
    """What will be written and run. Nothing has been written yet; Enter submits once."""

    CSS_PATH = "../styles/review.tcss"
    step = "review"
    HELP_TEXT = (
        "These are the files the job will consist of; findings of lint stand under their lines. The settings tab\n"
        "says where each setting comes from. Enter writes the files to the run folder and submits the job. If the\n"
        "scheduler refuses, nothing is left running and every choice and edit is kept."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Submit", id="submit"),
        Binding("e", "edit", "Edit", tooltip="Edit this file in $EDITOR; what you save is what is submitted"),
        Binding("v", "diff", "Differences", tooltip="What differs from the earlier run, file by file"),
        Binding("d", "dry_run", "Dry run", tooltip="Say what submitting would do, and do nothing"),
        Binding(
            "w", "write_out", "Write files", tooltip="Write the files into a folder; nothing is submitted"
        ),
        Binding("o", "other_run", "Compare with…", show=False, tooltip="Choose the run to compare with"),
        Binding("n", "finding", "Next finding", show=False),
        Binding("u", "undo", "Take back edits", show=False, tooltip="This file as it was generated"),
    ]

    def __init__(self, beside: RunRecord | None = None) -> None:
        """beside: the run to compare with; None: the last one of these choices."""
        super().__init__()
        self.KEY_WORDS = {"next": "Submit"}
        self._generated: Launch | None = None
        self._ready: Launch | None = None
        self._checked: Checked | None = None
        self._beside = beside
        self._starts = ""
        self._diffing = False
        self._typed_in_vain: dict[
            str, str
        ] = {}  # texts that could not be taken: the next edit goes on from them
        self._blocked: Line | None = None
        self._refusal: UserError | None = None  # stays in sight until something is done about it
        self._written_for: Any = None  # the draft, its edits apart, that the files were generated from

    def body(self) -> ComposeResult:
        yield Lines([[("Writing the job…", "muted")]], id="cost", indent=2)
        yield TabRow(id="tabs")
        yield FileView(id="file")
        yield Lines(id="help", indent=2)

    def on_mount(self) -> None:
        self.update_path()
        self.query_one("#file").focus()

    def show_summary(self) -> None:
        """The cost lines say it here."""

    def resumed(self) -> None:
        super().resumed()
        self.KEY_WORDS = {"next": "Write files" if self.tune.draft.plan_only else "Submit"}
        self.refresh_bindings()
        if replace(self.tune.draft, edits={}) != self._written_for:  # else only a window was closed
            self._refusal = None
            self._write()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where nothing can be submitted Enter writes the files: one key for it is enough."""
        return not (action in ("write_out", "dry_run") and self.tune.has_draft and self.tune.draft.plan_only)

    # --- what is shown

    def _write(self) -> None:
        launch, choices, draft = self.tune.engine.launch, self.tune.engine.choices, self.tune.draft
        problems = choices.problems(draft)
        if problems:
            first = problems[0]
            self.query_one("#cost", Lines).say("Not ready to submit.", "bad")
            self._block(f"{first.text}", f"Esc goes back to {first.step}.")
            return
        self._blocked, self._written_for = None, replace(draft, edits={})
        self.run_task("preview", lambda: launch.generated(draft), self._written)

    def _written(self, generated: Launch) -> None:
        self._generated, self._starts = generated, ""
        self._make_ready()
        if not self.tune.draft.plan_only:
            reviewing, ready = self.tune.engine.reviewing, self._ready
            self.run_task("starts", lambda: reviewing.starts(ready), self._start_known, lambda _: None)

    def _start_known(self, words: str) -> None:
        self._starts = words
        self._show_cost()

    def _make_ready(self) -> None:
        """The generated files with the user's changes in them; then they are checked."""
        assert self._generated is not None
        self._ready = self.tune.engine.launch.with_edits(self._generated, self.tune.draft.edits)
        self._checked = None
        self._show_all()
        self._check()

    def _check(self) -> None:
        engine, ready, beside = self.tune.engine, self._ready, self._beside
        self.run_task(
            "check", lambda: engine.reviewing.check(ready, engine.ledger, beside), self._checked_now
        )

    def _checked_now(self, checked: Checked) -> None:
        if not self.tune.has_draft:  # submitted meanwhile: the monitor is about to open
            return
        self._checked = checked
        self._show_all(stay=True)

    def _show_all(self, stay: bool = False) -> None:
        if self._ready is None:
            return
        names = review_lines.in_order(self._ready)
        found = review_lines.marks(names, self._ready, self._checked)
        self.query_one("#tabs", TabRow).show_names(names, found)
        self._show_cost()
        if self._blocked is None:
            self.query_one("#help", Lines).show(
                [*error_lines(self._refusal), *review_lines.said_lines(self._ready, self._checked)]
            )
        self._show_file(stay)

    def _show_cost(self) -> None:
        if self._ready is not None and self.tune.has_draft:
            lines = review_lines.cost_lines(self._ready, self.tune.draft.plan_only, self._starts)
            self.query_one("#cost", Lines).show(lines)

    @property
    def _tab(self) -> str:
        return self.query_one("#tabs", TabRow).name_shown

    @on(TabRow.Picked)
    def _picked(self, event: TabRow.Picked) -> None:
        event.stop()
        self._show_file()

    def _show_file(self, stay: bool = False) -> None:
        if self._ready is not None:
            self.query_one("#file", FileView).show_rows(self._rows(self._ready), stay)

    def _rows(self, ready: Launch) -> list[FileRow]:
        path = self._tab
        if path == SETTINGS:
            return self._setting_rows()
        diff = self._checked.difference.of(path) if self._checked and self._checked.difference else None
        if self._diffing and diff is not None:
            return diff_rows(path, diff)
        found = self._checked.in_file(path) if self._checked else ()
        return next((text_rows(path, f.content, found) for f in ready.rendered.files if f.path == path), [])

    def _setting_rows(self) -> list[FileRow]:
        from gpt_tune.workflows.origins import words_of

        settings = self.tune.engine.choices.settings_of(self.tune.draft)
        return setting_rows(settings, [words_of(s.value) for s in settings])

    def action_file(self, by: int) -> None:
        self.query_one("#tabs", TabRow).turn(by)

    # --- differences and findings

    def action_diff(self) -> None:
        """Show the file, or what differs in it from the earlier run."""
        if self._checked is None:
            return
        if self._checked.difference is None:
            self.say(
                self._checked.trouble or "There is no earlier run of these choices. o chooses another run."
            )
            return
        self._diffing = not self._diffing
        self._show_file()

    def action_other_run(self) -> None:
        """Choose the run to compare with."""
        self.run_task("runs", self.tune.engine.runs, self._choose_run)

    def _choose_run(self, records: list[RunRecord]) -> None:
        from tui.screens.pick_dialog import PickDialog
        from tui.states import ago

        if not records:
            self.say("There are no runs yet to compare with.")
            return
        options = [(r.run_id, r.name, f"{r.state.lower()} {ago(r.created_at)}, {r.run_id}") for r in records]
        by_id = {r.run_id: r for r in records}
        now = self._checked.compared.run_id if self._checked and self._checked.compared else ""
        self.app.push_screen(PickDialog(options, now), lambda chosen: self._chosen_run(by_id, chosen))

    def _chosen_run(self, records: dict[str, RunRecord], chosen: str | None) -> None:
        if chosen is not None:
            self._beside, self._diffing = records[chosen], True
            self._check()

    def action_finding(self) -> None:
        """The next finding of lint: in this file, else in the next one that has any."""
        tabs = self.query_one("#tabs", TabRow)
        if self._checked is None or not self._checked.findings:
            self.say("lint found nothing.")
        elif not self._checked.in_file(tabs.name_shown):
            while not self._checked.in_file(tabs.name_shown):
                tabs.turn(1)
            self.call_after_refresh(self.query_one("#file", FileView).seek, "!")
        else:
            self.query_one("#file", FileView).seek("!")

    # --- editing

    def action_edit(self) -> None:
        """Edit the file on the screen in the user's own editor."""
        if self._ready is None or self._generated is None or self._tab == SETTINGS:
            self.say("Settings are changed on their steps: Esc goes back.")
            return
        from gpt_tune.workflows import edits

        path = self._tab
        before = next(f for f in self._ready.rendered.files if f.path == path)
        base = next(f for f in self._generated.rendered.files if f.path == path)
        text = ""
        try:
            text = self._typed_in_vain.get(path) or edits.text_of(before)
            words = editor.command()
            with self.app.suspend():
                text = after = editor.edit(path, text, words)
            self._typed_in_vain.pop(path, None)
            if after == edits.text_of(before):
                self.say("Nothing was changed.")
            else:
                self._take(
                    edits.edited(self._ready.spec, self._ready.rendered, path, after, edits.text_of(base))
                )
        except SuspendNotSupported:
            self.say(
                "An editor needs a terminal of its own, and this is none: `gpt-tune submit PROFILE --edit`.",
                "bad",
            )
        except UserError as error:
            if text != edits.text_of(before):
                self._typed_in_vain[path] = text
                error = UserError(error.message, f"{error.hint} e opens what you wrote again.".strip())
            self.task_failed(error)

    def _take(self, edit: Any) -> None:
        """A change of a file, or its end where it is as generated again."""
        others = {p: e for p, e in self.tune.draft.edits.items() if p != edit.path}
        self._refusal = None
        kept = others if edit.text == edit.base else {**others, edit.path: edit}
        self.tune.set_draft(replace(self.tune.draft, edits=kept))
        self._make_ready()

    def action_undo(self) -> None:
        """This file as it was generated."""
        edits = dict(self.tune.draft.edits)
        self._typed_in_vain.pop(self._tab, None)
        if edits.pop(self._tab, None) is None:
            self.say(f"{self._tab} is as it was generated.")
            return
        self.tune.set_draft(replace(self.tune.draft, edits=edits))
        self._make_ready()

    # --- submitting and writing out

    def action_next(self) -> None:
        """Submit, once: while an answer is awaited further Enters do nothing."""
        if self._blocked is not None:
            self.query_one("#help", Lines).show([self._blocked])
        elif self._ready is None or self.task_running("submit"):
            return
        elif self.tune.draft.plan_only:
            self.action_write_out()
        elif self._own_errors:
            from tui.screens.dialogs import Confirm

            first = self._own_errors[0]
            detail = f"Line {first.line} of {first.file}: {first.message}"
            self.app.push_screen(
                Confirm("lint finds an error in what you edited. Submit anyway?", detail), self._submit
            )
        else:
            self._submit(True)

    @property
    def _own_errors(self) -> list[Any]:
        found = self._checked.findings if self._checked else ()
        edited = self._ready.edited if self._ready else ()
        return [f for f in found if f.severity == "error" and f.file in edited]

    def _submit(self, yes: bool | None) -> None:
        engine, reviewed = self.tune.engine, self._ready
        if not yes or reviewed is None:
            return
        self._refusal = None
        self.say("Submitting…", "accent")
        # Exactly what was looked at: the files on the screen are the files that are written.
        self.run_task(
            "submit",
            lambda: engine.launch.submit(reviewed, engine.ledger),
            self._submitted,
            self._refused,
        )

    def _submitted(self, record: RunRecord) -> None:
        self.tune.drop_draft()
        self.tune.go_home()
        self.tune.open("monitor", record)

    def _refused(self, error: UserError) -> None:
        """Say why; a run that was refused stays refused, so another try gets a new run id."""
        self._refusal = error
        self._write()

    def action_write_out(self) -> None:
        """Ask for a folder and write the files into it; nothing is submitted."""
        if self._ready is None or self._blocked is not None:
            return
        from tui.screens.dialogs import Ask

        profile, problem = self._ready.spec.profile, self.tune.engine.offline.folder_problem
        name = profile.name or f"{profile.recipe}-{profile.model.id.partition('=')[0].rpartition('/')[2]}"
        question = "Write the job's files into which folder? Nothing is submitted."
        self.app.push_screen(Ask(question, f"./{name}", problem), self._write_into)

    def _write_into(self, folder: str | None) -> None:
        if folder:
            offline, draft = self.tune.engine.offline, self.tune.draft
            self.run_task("write-out", lambda: offline.write_out(draft, folder), self._written_out)

    def _written_out(self, paths: tuple[str, ...]) -> None:
        folder = paths[0].rpartition("/")[0]
        text = f"{len(paths)} files are in {folder}, made to lie there: run sbatch job.sbatch in it on the cluster."
        self.query_one("#help", Lines).show([[("Written. ", "good"), (text, "")]])

    def action_dry_run(self) -> None:
        """Say what Enter would do."""
        if self._ready is not None:
            words = review_lines.dry_run_words(self._ready)
            self.query_one("#help", Lines).show([[("Dry run: ", "strong"), (words, "")]])

    def _block(self, text: str, hint: str) -> None:
        self._blocked = [("! ", "bad"), (text, "bad"), (f" {hint}", "")]
        self.query_one("#help", Lines).show([self._blocked])
