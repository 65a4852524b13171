"""Owns the application: themes, global keys, and moving from screen to screen."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import events, work
from textual.app import App, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.worker import get_current_worker

from gpt_tune.schedulers import login
from tui.draft import Drafting
from tui.engine import Engine
from tui.notify import changes, sequence
from tui.poller import Poller
from tui.promptness import be_prompt
from tui.screens.home import Home
from tui.settings import load as load_settings
from tui.settings import path_of
from tui.tasks import Tasks
from tui.themes import CYCLE, OURS, theme_for
from tui.widgets.words import plural

if TYPE_CHECKING:
    from textual.screen import Screen

    from gpt_tune.errors import UserError
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.workflows.draft import Draft
    from gpt_tune.workflows.replay import Tape

# Screens by name; each module is imported when its screen is first opened.
_SCREENS = {
    "cluster": ("tui.screens.pick_step", "ClusterStep"),
    "site": ("tui.screens.form_step", "SiteStep"),
    "gpus": ("tui.screens.form_step", "GpusStep"),
    "model": ("tui.screens.pick_step", "ModelStep"),
    "training": ("tui.screens.form_step", "TrainingStep"),
    "plan": ("tui.screens.plan", "PlanStep"),
    "review": ("tui.screens.review", "ReviewStep"),
    "monitor": ("tui.screens.monitor", "Monitor"),
    "nodes": ("tui.screens.nodes", "Nodes"),
    "findings": ("tui.screens.findings", "Findings"),
    "runs": ("tui.screens.runs", "Runs"),
    "profiles": ("tui.screens.profiles", "Profiles"),
    "clusters": ("tui.screens.clusters", "Clusters"),
    "queue": ("tui.screens.queue", "Queue"),
    "doctor": ("tui.screens.doctor", "Doctor"),
    "replay": ("tui.screens.replay", "Replay"),
}

# Imported in the background beside the screens' own modules: small windows, and what draws charts.
WARM = ("tui.screens.dialogs", "tui.palette", "gpt_tune.workflows.watch", "plotext")
NOBODY_ASKED = 255  # ssh's own code for "no connection"
LEAVE_SECONDS = 3.0  # within which a second key quits
COPY_CHARACTERS = 50_000  # terminals drop what is much longer
RESIZE_SECONDS = 1.0  # how late a lost change of size is noticed


def make_screen(name: str, *arguments: Any) -> Screen[None]:
    """A new screen by its name."""
    module, cls = _SCREENS[name]
    screen: Screen[None] = getattr(import_module(module), cls)(*arguments)
    return screen


class GptTune(Drafting, Poller, Tasks, App[int], inherit_bindings=False):
    """The wizard. Screens read the draft and change it through `put`; the engine decides everything."""

    TITLE = "gpt-tune"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (80, "-normal"), (120, "-wide"), (160, "-huge")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (24, "-medium"), (34, "-tall")]  # noqa: RUF012
    COMMANDS = {lambda: import_module("tui.palette").KeyCommands}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", "Quit", show=False, id="quit"),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, id="suspend"),
        Binding("ctrl+t", "next_theme", "Theme", show=False, id="theme"),
    ]

    def __init__(
        self, engine: Engine | None = None, profile: str | None = None, tape: Tape | None = None
    ) -> None:
        super().__init__()
        self.engine = engine or Engine()
        self._profile = profile
        self._tape = tape
        self.typed = {}
        self._asked_to_leave = 0.0
        self.settings = load_settings()
        if self.settings.keys:
            from tui import keys

            self.set_keymap(keys.keymap(self.settings.keys, str(path_of())))
        for theme in OURS:
            self.register_theme(theme)
        self.theme = "mono" if self.no_color else theme_for(os.environ)

    @property
    def letters(self) -> bool:
        """Whether bars need letters, because colours are not there to tell parts apart."""
        return self.no_color or self.theme == "mono"

    def get_default_screen(self) -> Screen[None]:
        return Home()

    def on_mount(self) -> None:
        self._logins = login.handler
        login.handler = self.let_ssh_ask
        self.start_polling()
        self.set_interval(RESIZE_SECONDS, self._deliver_resize)
        # Back from Ctrl+Z the terminal is empty, and nothing has changed that would be drawn by itself.
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh(layout=True))
        if self._profile:
            self.begin_from_profile(self._profile)
        if self._tape is not None:
            self.open("replay", self._tape)

    def on_unmount(self) -> None:
        login.handler = self._logins

    def let_ssh_ask(self, command: list[str]) -> int:
        """Give ssh the terminal for its questions, and take it back; its exit code. Called from worker threads.

        Not for a poll that nobody asked for: that would take the keys from somebody who is typing.
        """
        if self.polling_by_itself or self._thread_id == get_ident():
            return NOBODY_ASKED
        return self.call_from_thread(self._ssh_asks, command)

    def _ssh_asks(self, command: list[str]) -> int:
        try:
            with self.suspend():
                print("gpt-tune: the login node asks; Ctrl+C gives up.", flush=True)
                return login.in_terminal(command)
        except SuspendNotSupported:  # a browser, or a test: there is no terminal to give away
            return NOBODY_ASKED
        except KeyboardInterrupt:
            return NOBODY_ASKED

    def runs_changed(self, before: Sequence[RunRecord], after: Sequence[RunRecord]) -> None:
        """Say what is news, also through the terminal."""
        for change in changes(before, after):
            if change.kind not in self.settings.notify.when:
                continue
            severity: Literal["error", "information"] = "error" if change.kind == "fail" else "information"
            self.notify(change.text, severity=severity, markup=False, timeout=10)
            if self._driver is not None and not (self.is_headless or self.is_web):
                self._driver.write(sequence(change.text, self.settings.notify, os.environ))

    def terminal_size(self) -> Size | None:
        """The size of the terminal now; None where there is none (tests, a browser)."""
        if self.is_headless or self.is_web or sys.__stdin__ is None:
            return None
        try:
            return Size(*os.get_terminal_size(sys.__stdin__.fileno()))
        except (OSError, ValueError):
            return None

    def _deliver_resize(self) -> None:
        """Deliver a change of size that got lost. Textual 8 waits for it with an 8 ms timer, which it drops when
        the machine is busy for longer; then neither that size nor any later one would arrive."""
        wanted = self.terminal_size()
        if wanted is not None and wanted != self.screen.outer_size:
            target = self.screen if wanted == self.size else self
            target.post_message(events.Resize(wanted, wanted))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Quit", "Leave gpt-tune; running jobs go on", self.action_quit)
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)
        yield SystemCommand("Help", "Keys and what this screen is for", self.action_help)

    @work(thread=True, exclusive=True, group="warm", name="warm", exit_on_error=False)
    def warm_up(self) -> None:
        """Import what the other screens need while the user reads the first: then each opens at once."""
        worker = get_current_worker()
        for module in dict.fromkeys([*WARM, *(module for module, _ in _SCREENS.values())]):
            if worker.is_cancelled:
                return
            import_module(module)
        # What has been imported stays: looking through it for garbage would stop the screen for a tenth of a second.
        gc.freeze()

    # --- moving

    def open(self, name: str, *arguments: Any) -> None:
        """Put a screen on top; Esc comes back to this one."""
        self.push_screen(make_screen(name, *arguments))

    def begin(self, draft: Any, keep: bool = False) -> None:
        """Start the wizard with a draft; keep: it is the one at hand, with what was typed."""
        self.set_draft(draft, fresh=not keep)
        self.open("cluster")

    def begin_from_profile(self, name: str) -> None:
        """Start the wizard with the choices of a profile (a name or a file)."""
        choices = self.engine.choices
        self.run_task("profile", lambda: choices.from_profile(name), self.begin)

    def next_step(self, after: str) -> None:
        """Open the wizard's next step that asks anything."""
        steps = [s for s in self.steps() if not s.skip or s.id == after]
        at = next((i for i, s in enumerate(steps) if s.id == after), -1)
        if at + 1 < len(steps):
            self.open(steps[at + 1].id)

    def go_home(self) -> None:
        """Close everything above the first screen."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    # --- global keys

    def action_help(self) -> None:
        from tui.screens.dialogs import Help

        if not isinstance(self.screen, Help):
            self.push_screen(Help(self.screen, getattr(self.screen, "HELP_TEXT", "")))

    def action_leave(self) -> None:
        """Quit, when asked twice: such a key is pressed too easily."""
        now = monotonic()
        if now - self._asked_to_leave < LEAVE_SECONDS:
            self.exit(0)
        self._asked_to_leave = now
        self.notify("Press Ctrl+C again to quit. Running jobs go on.", markup=False, timeout=LEAVE_SECONDS)

    def action_copy_out(self) -> None:
        """Put text on the clipboard of the user's own machine, through the terminal (OSC 52)."""
        text = self.screen.get_selected_text() or getattr(self.screen, "text_to_copy", str)()
        if not text:
            self.notify("Nothing to copy: select with the mouse, or go to a row.", markup=False)
            return
        kept = text[:COPY_CHARACTERS]
        self.copy_to_clipboard(kept)
        cut = " (the rest is too long for a terminal)" if len(kept) < len(text) else ""
        self.notify(f"Copied {plural(len(kept), 'character')}{cut}.", markup=False)

    def action_suspend_process(self) -> None:
        """Stop as a terminal would stop us: with the parent of our own job (`make run`), but after us.

        A parent that stops first hands the terminal to the shell while we still restore it, which stops us
        half-way; so a helper outside the job sends its signal a moment later.
        """
        parent = os.getppid()
        if self._driver is not None and self._driver.can_suspend and os.getpgid(parent) == os.getpgrp():
            command = ["sh", "-c", 'sleep 0.3; kill -TSTP "$1"', "sh", str(parent)]
            self._stopper = subprocess.Popen(command, start_new_session=True)
        super().action_suspend_process()

    def action_next_theme(self) -> None:
        at = CYCLE.index(self.theme) if self.theme in CYCLE else -1
        self.theme = CYCLE[(at + 1) % len(CYCLE)]
        self.notify(f"Theme: {self.theme}", markup=False)

    # --- runs

    def ask_cancel(self, record: RunRecord) -> None:
        """Cancel a run's job, after a question."""
        from tui.screens.dialogs import Confirm

        if not record.active:
            self.notify(f"{record.name} has ended: {record.state}.", markup=False)
            return
        question = f"Cancel {record.name} (job {record.job_id or 'not known yet'})?"
        self.push_screen(
            Confirm(question, "The job ends at once; its files stay."), partial(self._cancel, record)
        )

    def _cancel(self, record: RunRecord, yes: bool | None) -> None:
        if yes:
            self.notify(f"Cancelling {record.name}…", markup=False)
            cancel = self.engine.cancel_run
            self.run_task("cancel", lambda: cancel(record.run_id), lambda _: self.refresh_jobs(force=True))

    def begin_from_run(self, record: RunRecord) -> None:
        """Start the wizard with the choices of a run."""
        self.run_task("from-run", lambda: self.engine.draft_of_run(record), self.begin)

    def begin_cured(self, record: RunRecord) -> None:
        """Review a run again with the change that cures what ended it."""
        self.run_task("cure", lambda: self.engine.cured_draft(record), self._cured)

    def _cured(self, answer: tuple[Draft, tuple[str, ...]]) -> None:
        draft, changes = answer
        self.set_draft(draft, fresh=True)
        self.open("review")
        self.notify(f"Changed: {', '.join(changes)}. Nothing is submitted yet.", markup=False, timeout=10)

    def save_run(self, record: RunRecord) -> None:
        """Save a run's choices as a profile."""
        self.run_task("from-run", lambda: self.engine.draft_of_run(record), self.ask_profile_name)

    def task_failed(self, error: UserError) -> None:
        self.notify(str(error), severity="error", markup=False, timeout=10)

    # --- profiles

    def ask_profile_name(self, draft: Draft | None = None) -> None:
        """Save all choices so far under a name."""
        from tui.screens.save_profile import ask_profile_name

        ask_profile_name(self, draft or self.draft)


def run_wizard(profile: str | None = None) -> int:
    """Open the wizard, with a profile's choices when one is named; the exit code of the command."""
    be_prompt()
    return GptTune(profile=profile).run() or 0


def run_replay(tape: Tape) -> int:
    """Open the monitor over a recording; the exit code of the command."""
    be_prompt()
    return GptTune(tape=tape).run() or 0
