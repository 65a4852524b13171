"""Owns the list of what every cluster has: partitions, nodes by state, free GPUs, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpt_tune.words import seconds_words
from tui.screens.base import Page, trail
from tui.tasks import Tasks
from tui.widgets.columns import Column
from tui.widgets.lines import Lines
from tui.widgets.paint import Line
from tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from gpt_tune.errors import UserError

COLUMNS = (
    Column("cluster"),
    Column("partition"),
    Column("free", "right"),
    Column("GPUs", "right"),
    Column("type"),
    Column("nodes", "right"),
    Column("limit", drop=1),
    Column("by state", grow=True, drop=2, least=10),
)


class Clusters(Tasks, Page):
    """Asked once when opened, and again with `r`: never in a loop."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "ask", "Ask again")]
    DEFAULT_CSS = """
    Clusters > #said { height: auto; max-height: 6; margin: 1 1 0 1; }
    Clusters > #parts { margin: 1 0; }
    Clusters.-short > #said { margin: 0 1; max-height: 2; }
    Clusters.-short > #parts { margin: 0; min-height: 2; }
    """
    KEY_WORDS: ClassVar[dict[str, str]] = {"choose": "Queue"}
    HELP_TEXT = (
        "Partitions with their free and total GPUs. Each cluster is asked once; r asks again.\n"
        "Enter shows your jobs on the cluster, and what could start there now."
    )

    def path(self) -> Line:
        return trail(["Clusters"], 0)

    def body(self) -> ComposeResult:
        yield Lines([[("Asking…", "muted")]], id="said", indent=2)
        yield RowList(COLUMNS, id="parts", empty="nothing yet")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#parts").focus()
        self.action_ask()

    def action_ask(self) -> None:
        engine = self.tune.engine
        self.query_one("#said", Lines).say("Asking…", "muted")
        self.run_task("ask", lambda: [ask(engine, name) for name in engine.clusters.available()], self._show)

    def _show(self, answers: list[tuple[str, tuple[Any, int, str] | str]]) -> None:
        rows: list[Row] = []
        said: list[Line] = []
        for name, answer in answers:
            if isinstance(answer, str):
                said.append([(f"{name}: ", "strong"), (answer, "bad")])
                continue
            found, calls, way = answer
            self.tune.count_calls(calls)
            notes = f"; {' '.join(found.notes)}" if found.notes else ""
            by = "" if found.scheduler == "local" else f" by {way}"
            said.append([(f"{name}: ", "strong"), (f"{found.scheduler} {found.version}{by}{notes}", "muted")])
            rows += [Row(f"{name}/{p.name}", _cells(name, p)) for p in found.partitions]
        said.append([(self.tune.rate_words(), "muted")])
        self.query_one("#said", Lines).show(said)
        self.query_one("#parts", RowList).show_rows(rows)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.tune.open("queue", event.key.partition("/")[0])

    def task_failed(self, error: UserError) -> None:
        self.query_one("#said", Lines).say(str(error), "bad")


def ask(engine: Any, name: str) -> tuple[str, tuple[Any, int, str] | str]:
    """What a cluster has with what asking cost and which way it went, or the sentence why it does not say."""
    from gpt_tune.errors import UserError

    try:
        return name, engine.cluster_look(name)
    except UserError as error:
        return name, str(error)


def _cells(cluster: str, p: Any) -> tuple[str, ...]:
    states: dict[str, int] = {}
    for group in p.groups:
        for state, number in group.nodes_by_state.items():
            states[state] = states.get(state, 0) + number
    kinds = sorted({g.gpu for g in p.groups if g.gpu})
    limit = "none" if p.time_limit_seconds is None else seconds_words(p.time_limit_seconds)
    return (
        cluster,
        p.name + (" *" if p.default else ""),
        str(p.gpus_free),
        str(p.gpus_total),
        "/".join(kinds) or "-",
        str(sum(g.nodes for g in p.groups)),
        limit,
        ", ".join(f"{number} {state}" for state, number in states.items() if number),
    )
