"""Owns what is done with the log on the monitor: find, filter, errors, copy, save, read in a pager."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpt_tune.errors import UserError
from gpt_tune.logs.filter import parse_filter
from tui.keys import with_names
from tui.paging import MOST_COPIED, clipboard_text, free_name, save_lines, show_in_pager
from tui.widgets.logpane import LogPane
from tui.widgets.paint import Line
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.diagnosis.types import Finding
    from gpt_tune.ledger.record import RunRecord
    from tui.scene import Scene
    from tui.screens.monitor_follow import Following, Older

FILTER_HELP = 'level:error  rank:0-7,12  node:b200-3  /nccl.*timeout/  "some text"; empty shows all'

LOG_ACTIONS = frozenset({"find", "filter", "first_error", "last_error", "copy_shown", "save_log", "pager"})


class LogKeys(Screen[None]):
    """Mixed into the monitor."""

    BINDINGS: ClassVar[list[BindingType]] = with_names(
        "Monitor",
        [
            Binding("slash", "find", "Find", key_display="/", tooltip="Find text in the log; n and N go on"),
            Binding(
                "l",
                "filter",
                "Filter",
                tooltip="Show only lines of a level, rank, node, or with a text or pattern",
            ),
            Binding("e", "first_error", "First error", tooltip="Jump to the first error in the log"),
            Binding(
                "E", "last_error", "Last error", show=False, tooltip="Jump to the newest error in the log"
            ),
            Binding(
                "y", "copy_shown", "Copy", show=False, tooltip="Copy the lines on screen to the clipboard"
            ),
            Binding(
                "Y",
                "save_log",
                "Save log",
                show=False,
                tooltip="Write the lines shown (filtered) into a file",
            ),
            Binding("v", "pager", "Pager", show=False, tooltip="Read the whole file in $PAGER (less)"),
        ],
    )

    record: RunRecord
    scene: Scene
    following: Following | None
    _older_wanted = False
    _page_at: Finding | None = None

    @property
    def log_pane(self) -> LogPane:
        return self.query_one(LogPane)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in LOG_ACTIONS:
            return self.log_pane.display if self.is_mounted else True
        return super().check_action(action, parameters)

    # --- find and filter

    def action_find(self) -> None:
        from tui.screens.dialogs import Ask

        self.app.push_screen(Ask("Find in the log:", self.log_pane.finder.wanted), self._find)

    def _find(self, wanted: str | None) -> None:
        if wanted is None:
            return
        count = self.log_pane.search(wanted)
        if not count:
            where = (
                "the lines held here; v opens the whole file" if self.log_pane.store.dropped else "this log"
            )
            self.notify(f"No line contains {wanted!r} in {where}.", markup=False)

    def action_filter(self) -> None:
        from tui.screens.dialogs import Ask

        now = self.following.asked.filter if self.following is not None else ""
        self.app.push_screen(
            Ask(f"Show only lines with:  {FILTER_HELP}", now, _why_not, empty=True), self._filter
        )

    def _filter(self, text: str | None) -> None:
        if text is not None:
            self.use_filter(text.strip())

    def use_filter(self, text: str) -> None:
        """Show only some lines from now on; an empty text shows all."""
        if self.following is not None:
            self.following.ask(filter=text)
        self.log_pane.set_filter(text)

    def end_narrowing(self) -> bool:
        """Esc: first ends a search, then a filter; False when there is neither."""
        if self.log_pane.finder.wanted:
            self.log_pane.search("")
        elif self.log_pane.filter_text:
            self.use_filter("")
        else:
            return False
        return True

    # --- errors

    def action_first_error(self) -> None:
        """Jump to the line of the root cause, or say that there is none."""
        if self.scene.cause is None:
            self.notify("No error found in this log.", markup=False)
        else:
            self.go_to_finding(self.scene.cause)

    def go_to_finding(self, finding: Finding) -> None:
        """Show its line; where that is not held, the pager will open there."""
        number = self.log_pane.containing(finding.excerpt)
        if number is not None:
            self._show_line(number)
            return
        self._page_at = finding
        where = (
            f"line {finding.line:,} of {Path(finding.source).name}"
            if finding.line is not None
            else "its line"
        )
        self.notify(f"v opens {where}: not among those held here. {finding.text}", markup=False)

    def action_last_error(self) -> None:
        number = self.log_pane.newest("error")
        if number is None:
            self.notify("No line among those held here says that it is an error.", markup=False)
        else:
            self._show_line(number)

    def _show_line(self, number: int) -> None:
        if self.log_pane.go_to_line(number):
            return
        self.use_filter("")
        self.notify("The filter hid that line: it is off now.", markup=False)
        self.log_pane.go_to_line(number)

    # --- older lines

    @on(LogPane.WantsOlder)
    def _wants_older(self, event: LogPane.WantsOlder) -> None:
        event.stop()
        store = self.log_pane.store
        if store.dropped or self.following is None or self._older_wanted:
            return  # between those dropped and those on file there would be a gap
        self._older_wanted = True
        self.following.ask(older=self.following.asked.older + 1)

    def show_older(self, older: Older) -> None:
        self._older_wanted = False
        if not self.log_pane.add_older(older.lines):
            self.notify("No more lines are held here; v opens the whole file.", markup=False)
        elif older.start:
            self.notify("This is the beginning of the log.", markup=False, timeout=2)

    # --- taking lines elsewhere

    def action_copy_shown(self) -> None:
        lines = self.log_pane.visible_lines()
        text, cut = clipboard_text(lines)
        self.app.copy_to_clipboard(text)
        said = f"Copied {plural(len(lines), 'line')} to the clipboard (terminal permitting)."
        self.notify(
            said + (f" Cut at {MOST_COPIED:,} characters; Y writes a file." if cut else ""), markup=False
        )

    def action_save_log(self) -> None:
        from tui.screens.dialogs import Ask

        name = free_name(Path.cwd(), f"{self.record.name}.log")
        self.app.push_screen(Ask("Write the lines shown into a new file:", str(name)), self._save_log)

    def _save_log(self, name: str | None) -> None:
        if not name:
            return
        entries = self.log_pane.store.shown_entries()
        try:
            path = save_lines(Path(name).expanduser(), [entry.text for entry in entries])
        except UserError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.notify(f"{plural(len(entries), 'line')} in {path}.", markup=False)

    def action_pager(self) -> None:
        """The whole file outside of this screen; which one is asked where there are several."""
        sources = self.following.watch.sources if self.following is not None else []
        if len(sources) > 1:
            from tui.screens.pick_dialog import PickDialog

            options = [(source, Path(source).name, str(Path(source).parent)) for source in sources]
            first = self._page_at.source if self._page_at is not None else sources[0]
            self.app.push_screen(PickDialog(options, first), self._page)
        elif sources:
            self._page(sources[0])

    def _page(self, source: str | None) -> None:
        if source is None:
            return
        held = [entry.text for entry in self.log_pane.store.held if entry.source == source]
        at = self._page_at if self._page_at is not None and self._page_at.source == source else None
        self._page_at = None
        try:
            show_in_pager(
                self.app, source, held, self.log_pane.finder.wanted, at.line if at is not None else None
            )
        except UserError as error:
            self.notify(str(error), severity="error", markup=False)

    # --- words

    def log_title(self) -> Line:
        """State, hints and what is hidden: `── log ── paused: f follows ── 2,341 new lines`."""
        log = self.log_pane
        store = log.store
        state = "follow" if log.follow else "paused: f follows"
        parts: list[tuple[str, str]] = [(state, "good" if log.follow else "warn")]
        if log.unseen:
            parts.append((f"{plural(log.unseen, 'new line')}", "accent"))
        if log.filter_text:
            shown = "filtering…" if log.judging else f"{len(store.rows):,} of {len(store.held):,} lines"
            parts.append((f"only {log.filter_words} ({shown}, Esc ends)", "accent"))
        if log.finder.wanted:
            parts.append((f"find {log.finder.wanted!r} {log.finder.words} (n N, Esc ends)", "accent"))
        if store.folded:
            parts.append((f"{plural(store.folded, 'repeat')} folded", "muted"))
        if store.dropped:
            parts.append((f"{store.dropped:,} older lines not held", "muted"))
        line: list[tuple[str, str]] = [("── log", "muted")]
        for text, role in parts:
            line += [(" ── ", "muted"), (text, role)]
        return line


def _why_not(text: str) -> str | None:
    """Why a filter cannot be used."""
    try:
        parse_filter(text)
    except UserError as error:
        return str(error)
    return None
