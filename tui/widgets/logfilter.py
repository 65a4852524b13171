"""Owns filtering what a log pane shows: a filter typed by the user, answered in a thread where there are many lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from textual.message import Message
from textual.widget import Widget

from gpt_tune.logs.filter import LineFilter, parse_filter
from gpt_tune.logs.lines import LineFacts
from tui.widgets.logstore import Entry, LogStore

AT_ONCE = 1000  # lines that are judged without a thread: a pattern takes up to 20 microseconds a line


@dataclass
class Judged(Message):
    """Which lines, by their numbers, a filter wants."""

    text: str
    answers: dict[int, bool]


class Filtering(Widget):
    """Mixed into the log pane. `judging` while a thread is at it."""

    store: LogStore
    filter_text = ""
    filter_words = ""
    _filter: LineFilter | None = None
    judging = False

    def _keep_place(self, change: Callable[[], object]) -> None:
        raise NotImplementedError

    def wants(self, facts: LineFacts) -> bool:
        """Whether the filter lets a line through."""
        return self._filter is None or self._filter.matches(facts)

    def set_filter(self, text: str) -> None:
        """Show only the lines that a legal filter text wants; an empty one: all."""
        self._filter = parse_filter(text) if text else None
        self.filter_text, self.filter_words = text, self._filter.words() if self._filter is not None else ""
        self.judging = self._filter is not None and len(self.store.held) > AT_ONCE
        if self.judging:
            job = partial(self._judge, text, dict(zip(self.store.numbers, self.store.held)))
            # A description of its own: the usual one would spell out every line.
            self.run_worker(
                job, group="filter", description="filter", thread=True, exclusive=True, exit_on_error=False
            )
        else:
            self._keep_place(lambda: self.store.judge(self.wants))

    def _judge(self, text: str, held: dict[int, Entry]) -> None:
        wanted = parse_filter(text)  # of its own: patterns keep state and are not shared between threads
        self.post_message(Judged(text, {n: wanted.matches(entry.facts) for n, entry in held.items()}))

    def on_judged(self, event: Judged) -> None:
        event.stop()
        if event.text != self.filter_text:
            return
        self.judging = False
        self._keep_place(lambda: self.store.judge(self.wants, event.answers))
