"""Tests of the plain questions: the same choices and results as the wizard, by numbered lines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import clusters, planner
from gpt_tune.errors import SchedulerError
from gpt_tune.ledger import Ledger
from gpt_tune.profiles import store
from gpt_tune.schedulers.base import Cluster
from gpt_tune.workflows import choices, launch
from tests.profiles.test_choices import EVERYTHING
from tui.plain import auto, flow, review
from tui.plain.ask import Item, Lines
from tui.plain.plan import plan_page


@dataclass
class Script:
    """A user who answers from a list, and what was shown to them."""

    answers: list[str]
    shown: list[str] = field(default_factory=list)

    def read(self, prompt: str) -> str:
        self.shown.append(prompt)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    @property
    def lines(self) -> Lines:
        return Lines(self.read, self.shown.append)

    @property
    def text(self) -> str:
        return "\n".join(self.shown)


@pytest.fixture(autouse=True)
def _here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm cluster that can be looked at and nothing more."""
    monkeypatch.setattr(clusters, "available", lambda: ["dev", "local"])
    monkeypatch.setattr(clusters, "silent", dict)
    monkeypatch.setattr(clusters, "discover", lambda name=None: EVERYTHING[name or "dev"])


# -- one question -----------------------------------------------------------------------------------


def test_enter_takes_the_default() -> None:
    user = Script(["", "", ""])
    items = [Item("a", "A"), Item("b", "B")]
    assert user.lines.menu("Which?", items, "b") == "b"
    assert user.lines.text("Name", "x", "help", lambda _: None) == "x"
    assert user.lines.yes("Sure?", False) is False


def test_numbers_values_and_nonsense() -> None:
    user = Script(["7", "x", "1"])
    assert user.lines.menu("Which?", [Item("a", "A"), Item("b", "B")], "b") == "a"
    assert "none of 1 to 2" in user.text
    assert Script(["b"]).lines.menu("Which?", [Item("a", "A"), Item("b", "B")], "a") == "b"


def test_a_wrong_answer_is_told_and_asked_again() -> None:
    user = Script(["63", "64"])
    assert user.lines.text("GPUs", "8", "help", lambda t: "no" if t == "63" else None) == "64"
    assert "no" in user.shown
    assert Script(["-"]).lines.text("Account", "a", "help", lambda _: None) == ""


def test_yes_and_no() -> None:
    assert Script(["maybe", "YES"]).lines.yes("Sure?", False) is True
    assert Script(["n"]).lines.yes("Sure?", True) is False


# -- the flow ---------------------------------------------------------------------------------------


def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep what would be submitted instead of submitting it."""
    kept: list[Any] = []

    def submit(draft: Any, ask: Any) -> int:
        kept.append(draft)
        return 0

    monkeypatch.setattr(review, "_submit", submit)
    return kept


def test_enter_everywhere_submits_the_check_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = launched(monkeypatch)
    user = Script([""] * 10)
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    assert kept[0].recipe == "smoke"
    assert 10 - len(user.answers) <= 5, "cluster, processes, training, review"


def test_enter_everywhere_gives_what_auto_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = launched(monkeypatch)
    flow.run_plain("smoke", dry_run=False, ask=Script([""] * 10).lines)
    done: list[Any] = []

    def preview(draft: Any) -> None:
        done.append(draft)
        raise _NothingError

    monkeypatch.setattr(launch, "preview", preview)
    with pytest.raises(_NothingError):
        auto.run_auto("smoke", dry_run=False, as_json=True)
    assert done[0].profile == kept[0].profile


class _NothingError(Exception):
    """Ends a run where it would submit."""


@pytest.mark.usefixtures("dev")
def test_enter_everywhere_on_a_cluster_without_a_trainer_submits_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = launched(monkeypatch)
    user = Script([""] * 10)
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    assert kept[0].recipe == "smoke"
    assert kept[0].profile.cluster == "dev"
    assert user.text.count("MEGATRON_PATH") == 1, "why it is not the trainer, once"


@pytest.mark.usefixtures("dev")
def test_auto_on_a_cluster_without_a_trainer_takes_the_check_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def preview(draft: Any) -> None:
        seen.append(draft)
        raise _NothingError

    monkeypatch.setattr(launch, "preview", preview)
    with pytest.raises(_NothingError):
        auto.run_auto(None, dry_run=True, as_json=True)
    assert seen[0].recipe == "smoke"
    out, err = capsys.readouterr()
    assert out == ""
    assert "MEGATRON_PATH" in err


def test_changing_a_field_and_going_back_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = launched(monkeypatch)
    # cluster: on; processes: on; training: change seconds to 33, back; processes: on; training: on; review: submit
    user = Script(["", "", "smoke.seconds", "33", "back", "", "", ""])
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    assert kept[0].profile.smoke.seconds == 33


def test_more_settings_show_the_advanced_ones() -> None:
    user = Script(["", "", "more", "smoke.hidden", "66", "68", "quit"])
    with pytest.raises(KeyboardInterrupt):
        flow.run_plain(None, dry_run=False, ask=user.lines)
    assert "divide" in user.text, "66 does not divide by 4 heads, and that is said at once"


def test_saving_from_the_review_page(monkeypatch: pytest.MonkeyPatch) -> None:
    user = Script(["", "", "", "save", "mine", "quit"])
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    assert store.load("mine").recipe == "smoke"


def test_dry_run_shows_the_script_and_submits_nothing() -> None:
    user = Script(["", "", "", ""])
    assert flow.run_plain("smoke", dry_run=True, ask=user.lines) == 0
    assert "#!/" in user.text
    assert Ledger.open().runs() == []


def test_the_end_of_input_submits_nothing() -> None:
    with pytest.raises(EOFError):
        flow.run_plain(None, dry_run=False, ask=Script(["", ""]).lines)
    assert Ledger.open().runs() == []


def test_really_submitting(monkeypatch: pytest.MonkeyPatch) -> None:
    user = Script(["", "", "more", "smoke.steps", "2", "", "", "n"])
    assert flow.run_plain("smoke", dry_run=False, ask=user.lines) == 0
    (record,) = Ledger.open().runs()
    assert record.run_id in user.text
    assert f"gpt-tune watch {record.run_id}" in user.text


@pytest.mark.usefixtures("dev")
def test_on_a_cluster_the_site_is_asked_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = launched(monkeypatch)
    user = Script(["", "site.run_root", "/shared/runs", "", "", "recipe", "smoke", "", ""])
    draft = choices.start()
    monkeypatch.setattr(flow, "first_draft", lambda profile: choices.put(draft, "recipe", "smoke"))
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    assert kept[0].site.run_root == "/shared/runs"
    again = choices.load_cluster(choices.start(), "dev")
    assert again.site_known


@pytest.mark.usefixtures("dev")
def test_planning_for_hardware_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    user = Script(
        [
            "cluster",
            "plan-only",
            "",
            "p6-b200",
            "resources.gpus",
            "16",
            "",
            "",
            "",
            "2",
            "save",
            "planned",
            "quit",
        ]
    )
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    profile = store.load("planned")
    assert (profile.resources.gpu, profile.resources.gpus) == ("p6-b200", 16)
    request = choices.plan_request(choices.start(profile, cluster=choices.PLAN_ONLY), top=10)
    second = planner.search(replace(request, fixed={})).plans[1]
    assert profile.layout.fixed["tensor_parallel"] == second.layout.tensor_parallel
    assert "planning only" in user.text
    assert "  1. Submit" not in user.text


@pytest.mark.usefixtures("dev")
def test_a_cluster_that_fails_is_told_and_another_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def discover(name: str | None = None) -> Cluster:
        if name == "dev":
            raise SchedulerError("dev does not answer.", "Try later.")
        return EVERYTHING["local"]

    monkeypatch.setattr(clusters, "discover", discover)
    kept = launched(monkeypatch)
    user = Script([""] * 6)
    assert flow.run_plain(None, dry_run=False, ask=user.lines) == 0
    assert "dev does not answer. Try later." in user.text
    assert kept[0].profile.cluster == "local"


def test_screen_reader_output_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    launched(monkeypatch)
    user = Script([""] * 10)
    flow.run_plain(None, dry_run=False, ask=user.lines)
    assert user.text.isascii()
    assert "\x1b" not in user.text


def test_the_asker_for_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from tui.plain.ask import asker

    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(asker(), Lines)


# -- the review -------------------------------------------------------------------------------------


def test_planning_only_ends_with_the_files_in_a_folder(tmp_path: Path) -> None:
    draft = choices.start(cluster=choices.PLAN_ONLY, available=())
    for key, text in (("resources.gpu", "p6-b200"), ("model.id", "gpt-1.3b"), ("trainer.path", "/opt/mds")):
        draft = choices.put(draft, key, text)
    user = Script(["", "out", "write", "out", "other", "quit"])
    assert review.review(draft, user.lines, False)[1] == 0
    assert "Submit" not in user.text
    assert "is not empty" in user.text
    script = (tmp_path / "work" / "out" / "job.sbatch").read_text()
    assert f"--chdir={tmp_path}/work/out\n" in script
    assert (tmp_path / "work" / "other" / "job.sbatch").exists()
    assert Ledger.open().runs() == []


def test_an_edited_file_is_what_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = launched(monkeypatch)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i '$a true # mine'")
    draft = choices.load_cluster(choices.start(cluster="local", available=("local",)), "local")
    user = Script(["edit", "", "edit", "", "files", "", "check", "submit"])
    assert review.review(draft, user.lines, False)[1] == 0
    ready = launch.preview(kept[0])
    script = next(f.content for f in ready.rendered.files if f.path == ready.rendered.script).decode()
    assert script.endswith("true # mine\ntrue # mine\n"), "the second edit goes on from the first"
    assert "job.sbatch (edited by you)" in user.text
    assert "lint: nothing found" in user.text
    monkeypatch.setenv("EDITOR", "no-such-editor")
    user = Script(["edit", "", "quit"])
    review.review(draft, user.lines, False)
    assert "no such program" in user.text


def test_settings_are_told_with_their_origin() -> None:
    draft = choices.load_cluster(choices.start(cluster="local", available=("local",)), "local")
    user = Script(["settings", "back"])
    assert review.review(choices.put(draft, "smoke.seconds", "33"), user.lines, False)[1] is None
    assert "smoke.seconds: 33 (you)" in user.text


def test_a_bad_profile_name_is_asked_again_and_replacing_is_a_question() -> None:
    draft = choices.load_cluster(choices.start(cluster="local", available=("local",)), "local")
    user = Script(["save", "../x", "a b", "mine", "save", "mine", "n", "quit"])
    assert review.review(draft, user.lines, False)[1] == 0
    assert user.text.count("is no good profile name") == 2
    assert "Replace it?" in user.text


@pytest.mark.parametrize(("typed", "kept"), [("", "mine"), ("other", "other"), ("-", "")])
def test_what_is_typed_never_hangs_on_to_the_default(
    monkeypatch: pytest.MonkeyPatch, typed: str, kept: str
) -> None:
    import questionary

    from tui.plain.ask_questionary import Questionary

    offered: list[str] = []

    class Question:
        def unsafe_ask(self) -> str:
            return typed

    def text(title: str, default: str = "", **more: Any) -> Question:
        offered.append(default)
        assert more["validate"](typed) is True
        return Question()

    monkeypatch.setattr(questionary, "text", text)
    assert Questionary().text("Name", "mine", "help", lambda _: None) == kept
    assert offered == [""]


# -- fine-tuning ------------------------------------------------------------------------------------


def tuning(**answers: str) -> Any:
    draft = choices.start(cluster=choices.PLAN_ONLY)
    wanted = {"resources.gpu": "dgx-h200", "recipe": "qlora", "finetune.data": "some/data", **answers}
    for key, text in wanted.items():
        draft = choices.put(draft, key, text)
    return draft


def test_a_fine_tuning_plan_is_chosen_by_its_number() -> None:
    user = Script(["2"])
    draft, move = plan_page(tuning(**{"finetune.weights": "Qwen/Qwen3-8B"}), user.lines)
    assert move == 1
    assert draft.plan is not None
    assert draft.plan.rank == 2
    assert choices.profile_of(draft).finetune.strategy == "zero2"
    assert "1.6 either way" in user.text


@pytest.mark.parametrize(("answer", "move"), [("2", 1), ("1", -1), ("", -1)])
def test_where_nothing_fits_fine_tuning_may_go_on_without_a_plan(answer: str, move: int) -> None:
    user = Script([answer])
    huge = tuning(**{"finetune.weights": "meta-llama/Llama-3.1-405B", "resources.gpus": "1"})
    draft, went = plan_page(huge, user.lines)
    assert "Nothing fits" in user.text
    assert (draft.plan, went) == (None, move)
