"""Owns the steps that are forms: site, GPUs, training. Fields, defaults and checks come from the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from tui.screens.step import StepPage
from tui.widgets.choice import Choice
from tui.widgets.fields import FieldLike, FieldRow, Form, help_lines
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    from gpt_tune.workflows.draft import Draft


class FormStep(StepPage):
    """A form. What is typed goes into the draft at once when it is legal, and is kept as typed when not."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "more", "More settings", id="more"),
    ]

    first: ClassVar[str] = ""  # the field to start in, when it is not the topmost

    def __init__(self) -> None:
        super().__init__()
        self._all = False

    def fields(self) -> list[FieldLike]:
        return [f for f in self.tune.fields(self.step) if self._all or not f.advanced]

    def content(self) -> ComposeResult:
        with VerticalScroll(id="form-box", can_focus=False):
            yield Form(self.fields(), self.tune.text_of, id="form")

    def on_mount(self) -> None:
        super().on_mount()
        self._focus_first()

    def resumed(self) -> None:
        super().resumed()
        self._sync()

    def _focus_first(self) -> None:
        """What must be answered and is not, else where the page's own question is, else the top."""
        rows = list(self.query(FieldRow))
        own = self.query_one("#form", Form).row(self.first)
        needed = [row for row in rows if row.field.required and not row.text] if own is not None else []
        row = next(iter([*needed, *([own] if own else []), *rows]), None)
        if row is not None:
            row.control_widget.focus()

    @work(exclusive=True, group="sync")
    async def _sync(self, focus: str = "") -> None:
        """Show the fields as they are now; rebuild the form only when other ones are asked."""
        form = self.query_one("#form", Form)
        if form.update_fields(self.fields()):
            self._say_again()
            return
        key = focus or self._focused_key()
        fresh = Form(self.fields(), self.tune.text_of, id="form")
        async with self.batch():
            await form.remove()
            await self.query_one("#form-box").mount(fresh)
        row = fresh.row(key)
        if row is not None:
            row.control_widget.focus()
        else:
            self._focus_first()

    def _say_again(self) -> None:
        """The help of the field in focus, whose origin may have changed."""
        row = form_row(self.focused)
        if row is not None:
            self._show_help(row, self.tune.check(row.field.key, row.text))

    def _focused_key(self) -> str:
        row = form_row(self.focused)
        return row.field.key if row is not None else ""

    @on(Form.Changed)
    def _changed(self, event: Form.Changed) -> None:
        event.stop()
        row = self.query_one("#form", Form).row(event.key)
        if row is not None and event.text == self.tune.text_of(row.field):
            return  # shown, not typed: it must not become "from you"
        error = self.tune.put(event.key, event.text)
        if row is not None:
            row.control_widget.set_class(error is not None, "-wrong")
            self._show_help(row, error)
        if error is None:
            self.show_summary()
            self.update_path()
            self._sync(event.key)

    @on(Form.Focused)
    def _focused(self, event: Form.Focused) -> None:
        event.stop()
        self._show_help(event.row, self.tune.check(event.row.field.key, event.row.text))

    @on(Form.Done)
    def _done(self, event: Form.Done) -> None:
        event.stop()
        self.action_next()

    def _show_help(self, row: FieldRow, error: str | None) -> None:
        self.query_one("#help", Lines).show(help_lines(row.field, error, row.text))

    def ready(self) -> bool:
        """All texts are legal and nothing required is missing; else the first culprit gets the focus."""
        form = self.query_one("#form", Form)
        for field in self.fields():
            row = form.row(field.key)
            error = self.tune.check(field.key, row.text if row is not None else self.tune.text_of(field))
            if error is not None and row is not None:
                here = row.control_widget.has_focus
                row.control_widget.focus()
                self._show_help(row, error)
                if here and isinstance(row.control_widget, Choice) and row.control_widget.at < 0:
                    row.control_widget.action_list()  # Enter on a choice not made yet offers the choices
                return False
        return True

    def action_more(self) -> None:
        """Show the settings that most runs leave alone, or hide them again."""
        self._all = not self._all
        self._sync()


def form_row(control: Widget | None) -> FieldRow | None:
    """The row a control stands in."""
    row = control.parent if control is not None else None
    return row if isinstance(row, FieldRow) else None


class SiteStep(FormStep):
    step = "site"
    question = "This cluster, once: where do runs live, and how are jobs accounted?"
    HELP_TEXT = "Asked once for each cluster and kept. What could be found out is filled in already."

    def action_next(self) -> None:
        """Keep the site for this cluster, then go on."""
        if self.ready():
            save, draft = self.tune.engine.choices.save_site, self.tune.draft
            self.run_task("save-site", lambda: save(draft), self._saved)

    def _saved(self, draft: Draft) -> None:
        self.tune.set_draft(draft)
        self.tune.next_step(self.step)


class GpusStep(FormStep):
    step = "gpus"
    question = "How many GPUs?"
    first = "resources.gpus"
    HELP_TEXT = "A job takes part of one node, or whole nodes."

    def question_words(self) -> str:
        """Where there are no GPUs, the same number counts processes."""
        label = next((f.label for f in self.tune.fields(self.step) if f.key == self.first), "GPUs")
        return self.question if label == "GPUs" else f"How many {label.lower()}? There are no GPUs here."


class TrainingStep(FormStep):
    step = "training"
    question = "What shall it train, and for how long?"
    HELP_TEXT = "Enter takes everything as it stands. Rare settings: ctrl+o."
