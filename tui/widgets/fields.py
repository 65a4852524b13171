"""Owns a form of one-line fields with help, unit, origin and an error sentence for the one in focus.

It decides nothing: what a field is, and whether a text is legal, comes with the field and from `check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label

from tui.widgets.choice import Choice
from tui.widgets.paint import Line, clean


class OptionLike(Protocol):
    """One choice of a field."""

    @property
    def value(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def detail(self) -> str: ...


class FieldLike(Protocol):
    """What a form needs to know of a field (see gpt_tune.workflows.choices)."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def options(self) -> Sequence[OptionLike]: ...
    @property
    def value(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def required(self) -> bool: ...
    @property
    def advanced(self) -> bool: ...


def strict(field: FieldLike) -> bool:
    """Whether only the listed options are answers; other fields list them as suggestions."""
    return field.kind in ("choice", "bool") and bool(field.options)


class Entry(Input):
    """A one-line text entry in which `?` still asks for help and page keys walk through suggestions."""

    DEFAULT_CSS = """
    Entry, Entry:focus { height: 1; border: none; padding: 0 1; background: $surface; }
    Entry:focus { background: $surface-lighten-2; text-style: none; }
    Entry.-wrong { color: $text-error; }
    Entry:ansi { text-style: underline; background: ansi_default; border: none; }
    Entry:ansi:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Next", id="entry.next"),
        Binding("pageup", "suggest(1)", "Other sizes", key_display="PgUp/Dn", id="entry.other-sizes"),
        Binding("pagedown", "suggest(-1)", "Smaller", show=False, id="entry.smaller"),
    ]

    def __init__(
        self, value: str = "", *, suggested: Sequence[str] = (), placeholder: str = "", id: str | None = None
    ) -> None:
        super().__init__(value, placeholder, id=id)
        self._suggested = list(suggested)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self._suggested) if action == "suggest" else super().check_action(action, parameters)

    def action_suggest(self, by: int) -> None:
        """The next suggestion up or down from what stands here now."""
        at = self._suggested.index(self.value) + by if self.value in self._suggested else 0
        self.value = self._suggested[min(max(at, 0), len(self._suggested) - 1)]

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return False if character == "?" else super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        if event.character == "?":
            event.prevent_default()  # keeps Input's own handler from typing it; the key then finds its binding


class FieldRow(Horizontal):
    """Label, control, unit and origin of one field."""

    DEFAULT_CSS = """
    FieldRow { height: 1; }
    FieldRow > Label { padding: 0 1; color: $foreground 70%; text-wrap: nowrap; text-overflow: ellipsis; }
    FieldRow > .field-label { width: 22; }
    FieldRow > Entry, FieldRow > Choice { width: 32; margin: 0 1 0 0; }
    FieldRow > .field-note { width: 1fr; }
    FieldRow.-here > .field-label { text-style: bold; color: $foreground; }
    """

    def __init__(self, field: FieldLike, text: str) -> None:
        super().__init__()
        self.field = field
        self._text = text

    def compose(self) -> ComposeResult:
        star = " *" if self.field.required else ""
        yield Label(clean(self.field.label) + star, classes="field-label", markup=False)
        if strict(self.field):
            yield Choice([(o.value, o.label, o.detail) for o in self.field.options], self._text)
        else:
            yield Entry(self._text, suggested=[o.value for o in self.field.options])
        yield Label(self._note(), classes="field-note", markup=False)

    def _note(self) -> str:
        return clean("  ".join(part for part in (self.field.unit, self.field.source) if part))

    @property
    def control_widget(self) -> Widget:
        return self.query_one("Entry, Choice")

    @property
    def text(self) -> str:
        control = self.control_widget
        return control.value if isinstance(control, (Entry, Choice)) else ""

    def update_field(self, field: FieldLike, text: str) -> None:
        """Show a changed field (its origin, or a value that followed from another one)."""
        self.field = field
        self.query_one(".field-note", Label).update(self._note())
        control = self.control_widget
        if isinstance(control, Choice):
            control.show_value(text)
        elif isinstance(control, Entry) and not control.has_focus and control.value != text:
            with control.prevent(Input.Changed):
                control.value = text


class Form(VerticalScroll, can_focus=False):
    """Fields in a column. Up and down walk them; help and errors of the focused one stand below."""

    DEFAULT_CSS = """
    Form { height: 1fr; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Field", key_display="↑↓", id="form.field",
                tooltip="Previous field (Tab: next)"),
        Binding("down", "app.focus_next", "Next field", show=False, id="form.next-field"),
    ]  # fmt: skip

    @dataclass
    class Changed(Message):
        key: str
        text: str

    @dataclass
    class Focused(Message):
        row: FieldRow

    @dataclass
    class Done(Message):
        """Enter was pressed in a field."""

    def __init__(
        self, fields: Sequence[FieldLike], texts: Callable[[FieldLike], str], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._fields = list(fields)
        self._texts = texts

    def compose(self) -> ComposeResult:
        for field in self._fields:
            yield FieldRow(field, self._texts(field))

    def row(self, key: str) -> FieldRow | None:
        return next((row for row in self.query(FieldRow) if row.field.key == key), None)

    def update_fields(self, fields: Sequence[FieldLike]) -> bool:
        """Show changed fields in place; False when the set of fields differs and the form must be rebuilt."""
        rows = {row.field.key: row for row in self.query(FieldRow)}
        if [f.key for f in fields] != list(rows) or any(
            tuple(f.options) != tuple(rows[f.key].field.options) for f in fields
        ):
            return False
        for field in fields:
            rows[field.key].update_field(field, self._texts(field))
        return True

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        row = event.widget.parent
        for other in self.query(FieldRow):
            other.set_class(other is row, "-here")
        if isinstance(row, FieldRow):
            self.scroll_to_widget(row, animate=False)
            self.post_message(self.Focused(row))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._announce(event.input, event.value)

    @on(Choice.Changed)
    def _turned(self, event: Choice.Changed) -> None:
        event.stop()
        self._announce(event.choice, event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())

    def _announce(self, control: Widget, text: str) -> None:
        if isinstance(control.parent, FieldRow):
            self.post_message(self.Changed(control.parent.field.key, text))


def help_lines(field: FieldLike, error: str | None, text: str) -> list[Line]:
    """What the help panel says about a field; an error comes first, in words."""
    lines: list[Line] = [[("! ", "bad"), (error, "bad")]] if error else []
    lines.append([(field.help, ""), (" Required." if field.required else "", "muted")])
    lines += [[(o.detail, "muted")] for o in field.options if o.value == text and o.detail]
    if field.source and not error:
        lines.append([(f"Value from: {field.source}.", "muted")])
    return lines
