"""Owns the monitor over a recorded run: the same screen, with keys for the tape instead of those for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from gpt_tune.workflows.replay import record_of
from tui.screens.base import trail
from tui.screens.monitor import Monitor
from tui.widgets.paint import Line
from tui.widgets.words import clock

if TYPE_CHECKING:
    from gpt_tune.workflows.replay import Tape

LOOK_SECONDS = 0.25  # between two looks at the tape; it is drawn when its words changed
STEP_SHARE = 0.05  # of the recording, one seek
JOB_ACTIONS = frozenset({"cancel", "resubmit", "save", "exclude", "requeue", "hold", "release"})


class Replay(Monitor):
    """Plays a tape. Going back opens the screen anew there: a log cannot be unread."""

    WANTS_JOBS = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", key_display="Space", tooltip="Pause, or go on"),
        Binding("right_square_bracket", "turn(1)", "Faster", key_display="]"),
        Binding("left_square_bracket", "turn(-1)", "Slower", key_display="["),
        Binding("full_stop", "step(1)", "Forward", key_display=".", tooltip="Go 5 % forward"),
        Binding("comma", "step(-1)", "Back", key_display=",", tooltip="Go 5 % back", show=False),
        *(
            Binding(str(n), f"jump({n})", f"To {n}0 %", show=False, tooltip="0 to 9: jump to that tenth")
            for n in range(10)
        ),
    ]
    HELP_TEXT = "A recorded run, not a live one: nothing here reaches a scheduler."
    KEY_WORDS: ClassVar[dict[str, str]] = {**getattr(Monitor, "KEY_WORDS", {}), "back": "Back"}

    def __init__(self, tape: Tape) -> None:
        super().__init__(record_of(tape))
        self.tape = tape
        self._said: Line = []

    def on_mount(self) -> None:
        self.tune.engine.tapes[self.record.run_id] = self.tape
        super().on_mount()
        self.set_interval(LOOK_SECONDS, self._look_at_tape)

    def path(self) -> Line:
        return [*trail(["Replay", self.record.name], 1), ("  ", ""), *tape_words(self.tape)]

    def _look_at_tape(self) -> None:
        words = tape_words(self.tape)
        if words != self._said:
            self._said = words
            self.update_path()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is done to jobs is not there: this one is long over."""
        return False if action in JOB_ACTIONS else super().check_action(action, parameters)

    def action_pause(self) -> None:
        if self.tape.over:
            self._go(0.0)
        else:
            self.tape.pause()
        self._look_at_tape()

    def action_turn(self, direction: int) -> None:
        self.tape.turn(direction)
        self._look_at_tape()

    def action_step(self, direction: int) -> None:
        self._go(self.tape.position + direction * STEP_SHARE * self.tape.seconds)

    def action_jump(self, tenth: int) -> None:
        self._go(self.tape.seconds * tenth / 10)

    def _go(self, position: float) -> None:
        """Seek; back means a new screen, which reads the log up to there."""
        back = position < self.tape.position
        self.tape.seek(position)
        if back:
            self.app.switch_screen(Replay(self.tape))
        else:
            self._look_at_tape()


def tape_words(tape: Tape) -> Line:
    """`playing 2x  0:31 of 0:54`."""
    state = "ended" if tape.over else "paused" if tape.paused else "playing"
    role = {"playing": "good", "paused": "warn"}.get(state, "muted")
    speed = f" {tape.speed:g}x" if tape.speed != 1 or state == "playing" else ""
    return [(f"{state}{speed}", role), (f"  {clock(tape.position)} of {clock(tape.seconds)}", "muted")]
