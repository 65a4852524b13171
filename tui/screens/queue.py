"""Owns the queue of a cluster: my jobs, why they wait, free GPUs by type, what could start now; and acting on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.screens.base import Page, trail
from tui.screens.queue_words import COLUMNS, free_lines, job_lines, offer_lines, queue_rows
from tui.tasks import Tasks
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.workflows.queue import Group, MyJob, Offer, QueueView

AGAIN_SECONDS = 60.0  # between two looks while the screen is shown


class Queue(Tasks, Page):
    """One cluster at a time. What is under the cursor is explained below, and can be acted on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "offers", "What could start", tooltip="Ask Slurm what could start now instead"),
        Binding(
            "a", "adopt", "Adopt", tooltip="Take a job that was submitted elsewhere into gpt-tune's runs"
        ),
        Binding("h", "control('hold')", "Hold", tooltip="Keep a waiting job from starting"),
        Binding("u", "control('release')", "Release", tooltip="Let a held job start"),
        Binding(
            "c", "cancel", "Cancel job", tooltip="Cancel the job, or all of a folded line, after a question"
        ),
        Binding("r", "look", "Ask again", tooltip="Ask the scheduler now"),
        Binding("left", "cluster(-1)", "Previous cluster", show=False),
        Binding("right", "cluster(1)", "Next cluster", show=False),
    ]
    DEFAULT_CSS = """
    Queue > #said { height: auto; max-height: 2; margin: 1 1 0 1; }
    Queue > #jobs { height: 1fr; min-height: 3; margin: 1 0 0 0; }
    Queue > #below { height: auto; max-height: 45%; margin: 1 1 0 1; }
    Queue.-short > #said { margin: 0 1; max-height: 1; }
    Queue.-short > #jobs { margin: 0; }
    Queue.-short > #below { margin: 0 1; max-height: 3; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Open"}
    HELP_TEXT = (
        "All jobs of yours on this cluster, also those not submitted here. Enter opens the monitor, unfolds a\n"
        "sweep or an array, or asks to adopt a job. Left and right show other clusters.\n"
        "Without the screen: `gpt-tune queue`."
    )
    WANTS_JOBS = True

    def __init__(self, cluster: str = "") -> None:
        super().__init__()
        self._names: Sequence[str] = [cluster] if cluster else []
        self._at = 0
        self._view: QueueView | None = None
        self._open: set[str] = set()
        self._offers: tuple[str, Sequence[Offer]] = ("", ())
        self._asking = ""
        self._way = ""
        self._states: Sequence[tuple[str, str]] = ()

    # --- what is shown

    def path(self) -> Line:
        parts = ["Queue", *([self._cluster] if self._cluster else [])]
        other = f"  {self._at + 1} of {len(self._names)}: ←→" if len(self._names) > 1 else ""
        return [*trail(parts, len(parts) - 1), (other, "muted")]

    def body(self) -> ComposeResult:
        yield Lines([[("Asking…", "muted")]], id="said", indent=2)
        yield RowList(COLUMNS, id="jobs", empty="no job of yours is in the queue")
        yield Lines(id="below", indent=2, focusable=True)

    @property
    def _cluster(self) -> str:
        return self._names[self._at] if self._names else ""

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#jobs").focus()
        if self._names:
            self.action_look()
        else:
            engine = self.tune.engine
            self.run_task("names", engine.clusters.available, self._found)
        self.set_interval(AGAIN_SECONDS, self._again)

    def _found(self, names: Sequence[str]) -> None:
        """Slurm's clusters; this machine only where there is no other."""
        self._names = [n for n in names if n != "local"] or list(names)
        self.update_path()
        self.action_look()

    def _again(self) -> None:
        """By itself: at the pace of the background."""
        view = self._view
        if self.is_current and view is not None and view.jobs:
            self.run_task(
                "look", partial(self.tune.engine.queue_again, self._cluster, view), self._looked_again
            )

    def _looked_again(self, answer: tuple[QueueView, int, str] | None) -> None:
        if answer is not None:
            self._looked(answer)

    def action_look(self) -> None:
        if self._cluster:
            self.run_task("look", partial(self.tune.engine.queue_look, self._cluster), self._looked)

    def _looked(self, answer: tuple[QueueView, int, str]) -> None:
        before = self._view
        self._view, calls, self._way = answer
        if before is None or _standing(before) != _standing(self._view):
            self._offers = ("", ())  # what could start was asked of another state of things
        self.tune.count_calls(calls)
        self._show()

    def show_records(self, records: Sequence[RunRecord]) -> None:
        """Called by the app when its poller has news of runs: then the queue has changed too."""
        states = [(r.run_id, r.state) for r in records if r.cluster == self._cluster]
        if self._states and states != self._states and self._view is not None:
            from gpt_tune.workflows.queue_again import with_runs

            self._view = with_runs(self._view, records)
            self._show()
            self._again()
        self._states = states
        self._say()

    def _show(self) -> None:
        if self._view is not None:
            self.query_one("#jobs", RowList).show_rows(queue_rows(self._groups(), self._open))
        self._say()
        self._explain()

    def _say(self) -> None:
        view = self._view
        if view is None:
            return
        waiting = sum(j.tasks for j in view.jobs if j.status.state == "PENDING")
        running = sum(j.tasks for j in view.jobs) - waiting
        way = f"{self._cluster} by {self._way}" if self._way != "this machine" else self._way
        said: Line = [
            (f"{running} running", "good" if running else "muted"),
            (f", {waiting} waiting", "warn" if waiting else "muted"),
        ]
        self.query_one("#said", Lines).show([[*said, (f" · {way} · {self.tune.rate_words()}", "muted")]])

    @on(RowList.Highlighted)
    def _explain(self) -> None:
        """The line under the cursor in words, free GPUs, and what could start."""
        view, group = self._view, self._current()
        if view is None:
            return
        lines: list[Line] = [*(job_lines(group) if group else []), *free_lines(view.free)]
        key, offers = self._offers
        if self._asking:
            lines += [[("Asking Slurm what could start…", "muted")]]
        elif group is None or all(j.status.state != "PENDING" for j in group.jobs):
            pass  # nothing here waits for a start
        elif key == group.key:
            lines += offer_lines(offers)
        else:
            lines += [[("s ", "key"), ("asks Slurm what could start now instead", "muted")]]
        self.query_one("#below", Lines).show(lines)

    # --- the line under the cursor

    def _groups(self) -> list[Group]:
        if self._view is None:
            return []
        groups: list[Group] = self.tune.engine.queue.folded(self._view.jobs)
        return groups

    def _current(self) -> Group | None:
        """What the cursor stands on: a folded line, or one job as a group of one."""
        key = self.query_one("#jobs", RowList).key or ""
        for group in self._groups():
            if group.key == key:
                return group
            for job in group.jobs:
                if job.status.job_id == key:
                    return type(group)(key, (job,))
        return None

    # --- acting

    def action_cluster(self, by: int) -> None:
        if len(self._names) > 1:
            self._at = (self._at + by) % len(self._names)
            self._view, self._offers = None, ("", ())
            self.update_path()
            self.query_one("#said", Lines).say("Asking…", "muted")
            self.query_one("#jobs", RowList).show_rows([])
            self.query_one("#below", Lines).show([])
            self.action_look()

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        group = self._current()
        if group is None:
            return
        if len(group.jobs) > 1:
            self._open ^= {group.key}
            self._show()
        elif group.jobs[0].run_id is None:
            self.action_adopt()
        else:
            engine, run_id = self.tune.engine, group.jobs[0].run_id
            self.run_task("open", lambda: engine.ledger.get(run_id), partial(self.tune.open, "monitor"))

    def action_offers(self) -> None:
        view, group = self._view, self._current()
        waiting = [j for j in group.jobs if j.status.state == "PENDING"] if group else []
        if view is None or group is None or not waiting:
            self.notify("Only a waiting job can be asked about: none is under the cursor.", markup=False)
            return
        self._asking = group.key
        self._explain()
        engine, job = self.tune.engine, waiting[0]
        self.run_task("offers", lambda: engine.queue_offers(view, job), partial(self._offered, group.key))

    def _offered(self, key: str, answer: tuple[list[Offer], int]) -> None:
        offers, calls = answer
        self.tune.count_calls(calls)
        self._asking, self._offers = "", (key, offers)
        self._say()
        self._explain()

    def action_adopt(self) -> None:
        from tui.screens.dialogs import Confirm

        group = self._current()
        jobs = [j for j in group.jobs if j.adoptable] if group else []
        if not jobs:
            self.notify("Nothing to adopt here: gpt-tune knows this job.", markup=False)
            return
        job = jobs[0].status
        ask = Confirm(
            f"Adopt job {job.job_id} ({job.name})?",
            "It becomes one of your runs here: its log, charts and findings.",
        )
        self.app.push_screen(ask, partial(self._adopt, job.job_id))

    def _adopt(self, job_id: str, yes: bool | None) -> None:
        if yes:
            engine, name = self.tune.engine, self._cluster
            self.run_task("adopt", lambda: engine.adopt_job(name, job_id), self._adopted)

    def _adopted(self, record: RunRecord) -> None:
        self.notify(f"Job {record.job_id} is run {record.run_id} from now on.", markup=False)
        self.action_look()
        self.tune.open("monitor", record)

    def action_control(self, action: str) -> None:
        """Hold or release what is under the cursor, as far as it can be."""
        group = self._current()
        fitting = [j for j in group.jobs if _can(action, j)] if group else []
        if not fitting:
            said = {"hold": "Only a waiting job can be held.", "release": "This job is not held."}[action]
            self.notify(said, markup=False)
            return
        self._act(action, fitting)

    def action_cancel(self) -> None:
        from tui.screens.dialogs import Confirm

        group = self._current()
        if group is None:
            return
        many = len(group.jobs) > 1
        what = f"all {group.tasks} jobs of {group.key}" if many else f"job {group.jobs[0].status.job_id}"
        name = "" if many else f" ({group.jobs[0].status.name})"
        question = Confirm(f"Cancel {what}{name}?", "What runs ends at once; files stay.")
        self.app.push_screen(question, lambda yes: self._act("cancel", group.jobs) if yes else None)

    def _act(self, action: str, jobs: Sequence[MyJob]) -> None:
        engine, name = self.tune.engine, self._cluster
        self.run_task("control", lambda: engine.control(action, name, jobs), self._done)

    def _done(self, _: None) -> None:
        self.tune.refresh_jobs(force=True)
        self.action_look()

    def task_failed(self, error: UserError) -> None:
        self._asking = ""
        self._explain()
        if self._view is None:
            self.query_one("#said", Lines).say(str(error), "bad")
        else:
            self.notify(str(error), severity="error", markup=False, timeout=10)


def _standing(view: QueueView) -> tuple[object, ...]:
    """What an answer on what could start depends on: jobs with their states, and what is free."""
    return tuple((j.status.job_id, j.status.state, j.held) for j in view.jobs), view.free


def _can(action: str, job: MyJob) -> bool:
    waiting = job.status.state == "PENDING"
    return waiting and (job.held if action == "release" else not job.held)
