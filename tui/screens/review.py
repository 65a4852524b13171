"""Owns the last look before submitting: every generated file, the cost, the warnings; then one Enter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpt_tune.words import count_words, gpu_hours_words
from tui.screens.step import StepPage
from tui.widgets.fileview import FileView
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.tabs import TabRow
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.errors import UserError


class ReviewStep(StepPage):
    """What will be written and run. Nothing has been written yet; Enter submits once."""

    CSS_PATH = "../styles/review.tcss"
    step = "review"
    HELP_TEXT = (
        "These are the files the job will consist of. Enter writes them to the run folder and submits the job.\n"
        "If the scheduler refuses, nothing is left running and every choice is kept."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Submit", id="submit"),
        Binding("d", "dry_run", "Dry run", tooltip="Say what submitting would do, and do nothing"),
        Binding("s", "save_profile", "Save profile", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._preview: Any = None
        self._blocked: Line | None = None
        self._trouble: UserError | None = None

    def body(self) -> ComposeResult:
        yield Lines([[("Writing the job…", "muted")]], id="cost", indent=2)
        yield TabRow(id="tabs")
        yield FileView(id="file")
        yield Lines(id="help", indent=2)

    def on_mount(self) -> None:
        self.update_path()
        self.query_one("#file").focus()

    def show_summary(self) -> None:
        """The cost line says it here."""

    def resumed(self) -> None:
        super().resumed()
        self._write()

    def _write(self) -> None:
        launch, choices, draft = self.tune.engine.launch, self.tune.engine.choices, self.tune.draft
        problems = choices.problems(draft)
        if problems:
            first = problems[0]
            self.query_one("#cost", Lines).say("Not ready to submit.", "bad")
            self._block(f"{first.text}", f"Esc goes back to {first.step}.")
            return
        self._blocked = None
        self.run_task("preview", lambda: launch.preview(draft), self._written)

    def _written(self, preview: Any) -> None:
        self._preview = preview
        files = sorted(
            (f.path for f in preview.rendered.files), key=lambda path: _place(path, preview.rendered.script)
        )
        self.query_one("#tabs", TabRow).show_names(files)
        self._show_file(files[0])
        self.query_one("#cost", Lines).show(self._cost_lines())
        if self._trouble is not None:
            error, self._trouble = self._trouble, None
            self.task_failed(error)
            return
        if self.tune.draft.plan_only:
            launch = self.tune.engine.launch
            self._block(launch.PLANNING_ONLY, launch.PLANNING_HINT)
            return
        warnings = (*preview.warnings, *preview.rendered.summary.get("warnings", ()))
        self.query_one("#help", Lines).show([[("! ", "warn"), (w, "warn")] for w in dict.fromkeys(warnings)])

    def _cost_lines(self) -> list[Line]:
        spec = self._preview.spec
        where = self.tune.draft.cluster_name or "planning only"
        tasks = spec.nodes * spec.tasks_per_node
        what = plural(spec.gpus, "GPU") if spec.gpus else plural(tasks, "process", "processes")
        size = f"{what} on {plural(spec.nodes, 'node')}"
        cost = f"costs {gpu_hours_words(self._preview.gpu_hours)}"
        total = self._preview.rendered.prediction.total_steps
        steps = f", {count_words(total)} steps" if total else ""
        first: Line = [
            (f"{spec.profile.recipe} on {where}", "strong"),
            (f"  {size}{steps}  ", ""),
            (cost, "accent"),
        ]
        return [first, [("in ", "muted"), (spec.run_dir, "")]]

    @on(TabRow.Picked)
    def _picked(self, event: TabRow.Picked) -> None:
        event.stop()
        self._show_file(event.name)

    def _show_file(self, path: str) -> None:
        for file in self._preview.rendered.files if self._preview is not None else ():
            if file.path == path:
                self.query_one("#file", FileView).show_file(file.path, file.content)

    def action_file(self, by: int) -> None:
        self.query_one("#tabs", TabRow).turn(by)

    # --- submitting

    def action_next(self) -> None:
        """Submit, once: while an answer is awaited further Enters do nothing."""
        if self._blocked is not None:
            self.query_one("#help", Lines).show([self._blocked])
        elif self._preview is not None and not self.task_running("submit"):
            engine, reviewed = self.tune.engine, self._preview
            self.say("Submitting…", "accent")
            # Exactly what was looked at: the files on the screen are the files that are written.
            self.run_task(
                "submit",
                lambda: engine.launch.submit(reviewed, engine.ledger),
                self._submitted,
                self._refused,
            )

    def _submitted(self, record: Any) -> None:
        self.tune.drop_draft()
        self.tune.go_home()
        self.tune.open("monitor", record)

    def _refused(self, error: UserError) -> None:
        """Say why; a run that was refused stays refused, so another try gets a new run id."""
        self._trouble = error
        self._write()

    def action_dry_run(self) -> None:
        """Say what Enter would do."""
        if self._preview is None:
            return
        spec, rendered = self._preview.spec, self._preview.rendered
        size = sum(len(f.content) for f in rendered.files)
        how = "sbatch" if spec.scheduler == "slurm" else "bash, detached"
        would = f"would write {len(rendered.files)} files ({size:,} bytes) to {spec.run_dir} and start"
        text = f"{would} {rendered.script} with {how}. Nothing was done."
        self.query_one("#help", Lines).show([[("Dry run: ", "strong"), (text, "")]])

    def task_failed(self, error: UserError) -> None:
        self.query_one("#help", Lines).show([[("! ", "bad"), (error.message, "bad")], [(error.hint, "")]])

    def _block(self, text: str, hint: str) -> None:
        self._blocked = [("! ", "bad"), (text, "bad"), (f" {hint}", "")]
        self.query_one("#help", Lines).show([self._blocked])


def _place(path: str, script: str) -> tuple[int, str]:
    """The job script first, then what is read, then what belongs to the trainer."""
    kinds = (
        path == script,
        path.endswith(".md"),
        path.endswith((".json", ".toml", ".yaml")),
        "/" not in path,
    )
    return kinds.index(True) if True in kinds else len(kinds), path
