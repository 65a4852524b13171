"""Whatever pyslurm does, the program goes on, the screen stays clean, and no job is submitted twice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_tune.errors import SchedulerError
from gpt_tune.schedulers import slurm_api, slurm_api_process
from gpt_tune.schedulers.base import SubmitRequest, SubmitUnknown, Unreachable
from gpt_tune.schedulers.slurm_api import SlurmApi
from tests.cluster import processes, wait_until

FAKE = Path(__file__).parent / "fake"
_COMMAND = """#!/bin/sh
case "$(basename "$0") $1" in
  "scontrol show") echo "ClusterName = toy"; echo "SLURM_VERSION = 22.05.8"; echo "AccountingStorageType = none";;
  "scontrol ping") echo "Slurmctld(primary) at toy is UP";;
  "sbatch --parsable") echo sbatch >>"$CALLED"; echo 815;;
  *) echo "$0" >>"$CALLED";;
esac
"""
Fake = Callable[..., SlurmApi]


@pytest.fixture
def called(tmp_path: Path) -> Path:
    """Where the stand-ins of Slurm's commands write that they were called."""
    return tmp_path / "called"


@pytest.fixture
def fake(home: Path, tmp_path: Path, called: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A SlurmApi over the stand-in library, with stand-ins of Slurm's commands beside it."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("scontrol", "sbatch", "squeue", "sinfo", "scancel"):
        (commands / name).write_text(_COMMAND)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.setenv("CALLED", str(called))
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    for name in ("_PING_SECONDS", "_READ_SECONDS", "_SUBMIT_SECONDS"):
        monkeypatch.setattr(slurm_api, name, 2.0)
    monkeypatch.setattr(slurm_api_process, "_START_SECONDS", 5.0)

    def make(what: str = "", **variables: str) -> SlurmApi:
        monkeypatch.setenv("FAKE_PYSLURM", what)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return SlurmApi()

    return make


def script(tmp_path: Path, *options: str) -> SubmitRequest:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n" + "".join(f"#SBATCH {o}\n" for o in options) + "true\n")
    return SubmitRequest(str(path), str(tmp_path), "job", "gpt-tune-9", {"EXTRA": "1"})


def commands_called(called: Path) -> list[str]:
    return called.read_text().split() if called.exists() else []


def test_the_cluster_is_sinfos_to_tell(fake: Fake, called: Path) -> None:
    """pyslurm shows every GPU as free where accounting does not count them."""
    scheduler = fake()
    scheduler.check_reachable()
    assert commands_called(called) == []
    cluster = scheduler.discover()
    assert (cluster.name, cluster.version) == ("toy", "22.05.8")
    assert [Path(c).name for c in commands_called(called)] == ["sinfo"]
    assert cluster.notes == ("jobs go through pyslurm 22.5.0",)
    assert scheduler.fallback == ""


def test_jobs_in_the_words_of_every_way(fake: Fake, called: Path) -> None:
    scheduler = fake()
    found = scheduler.statuses(["7", "8", "8_3", "12345", "local-1"])
    assert set(found) == {"7", "8", "8_3"}
    seven = found["7"]
    assert (seven.state, seven.gpus, seven.nodes, seven.reason) == ("RUNNING", 16, 2, "")
    assert (seven.submitted_at, seven.started_at) == ("2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")
    assert (found["8"].state, found["8"].exit_code) == ("FAILED", 5)
    assert commands_called(called) == []
    scheduler.statuses(["7"])  # of one job pyslurm asks for the steps, too: more requests than squeue makes
    assert commands_called(called)[0].endswith("squeue")
    assert scheduler.statuses(["12345"]) == {}
    assert {j.job_id for j in scheduler.my_jobs()} == {"7", "8_3"}
    before = scheduler.calls
    scheduler.statuses(["7", "8", "9"])
    assert scheduler.calls == before + 1


def test_submit_says_what_the_script_says(fake: Fake, tmp_path: Path, called: Path) -> None:
    target = tmp_path / "description"
    scheduler = fake(FAKE_PYSLURM_DESCRIPTION=str(target))
    request = script(
        tmp_path, "--job-name=trial", "--nodes=2", "--ntasks-per-node=4", "--gres=gpu:b200:8", "--time=10:00",
        "--no-requeue", "--signal=B:USR1@120", "--comment='project 7'",
    )  # fmt: skip
    assert scheduler.submit(request) == "4711"
    said = json.loads(target.read_text())
    assert {k: said[k] for k in ("name", "nodes", "ntasks", "ntasks_per_node", "gres_per_node", "signal")} == {
        "name": "trial", "nodes": 2, "ntasks": 8, "ntasks_per_node": 4, "gres_per_node": "gpu:b200:8",
        "signal": "B:SIGUSR1@120",
    }  # fmt: skip
    assert said["comment"] == "project 7 gpt-tune-9"
    assert (said["is_requeueable"], said["working_directory"]) == (False, str(tmp_path))
    assert said["environment"]["EXTRA"] == "1"
    assert "SLURM_CONF" in said["environment"]
    assert commands_called(called) == []


@pytest.mark.parametrize(
    "option", ["--mem=0", "--exclusive", "--hint=nomultithread", "--gpus=8", "--container-image=x"]
)
def test_what_pyslurm_cannot_say_goes_to_sbatch(
    fake: Fake, tmp_path: Path, called: Path, option: str
) -> None:
    assert fake().submit(script(tmp_path, "--nodes=1", option)) == "815"
    assert commands_called(called) == ["sbatch"]


def test_the_users_own_defaults_are_sbatchs_to_read(fake: Fake, tmp_path: Path, called: Path) -> None:
    assert fake(SBATCH_PARTITION="long").submit(script(tmp_path, "--nodes=1")) == "815"
    assert commands_called(called) == ["sbatch"]


TROUBLES = ["hang", "crash", "exit", "bug"]


@pytest.mark.parametrize("what", [*TROUBLES, "no-import", "dies-on-import", "hangs-on-import"])
def test_the_commands_do_it_instead_and_it_is_said(
    fake: Fake, called: Path, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    scheduler = fake(what)
    begin = time.monotonic()
    assert scheduler.my_jobs() == []
    assert commands_called(called)[0].endswith("squeue")
    assert "pyslurm" in scheduler.fallback
    assert "\n" not in scheduler.fallback
    assert slurm_api.way_words(scheduler).startswith("commands (")
    assert scheduler.my_jobs() == []  # at once now
    assert time.monotonic() - begin < 20
    assert scheduler._notes()[0].startswith("Slurm's commands are used: pyslurm")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_what_the_library_said_is_kept(fake: Fake) -> None:
    scheduler = fake("crash")
    scheduler.my_jobs()
    assert "the library gave up" in scheduler.fallback
    assert "-11" in scheduler.fallback


def test_its_noise_reaches_neither_screen_nor_protocol(fake: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    scheduler = fake("noise")
    assert {j.job_id for j in scheduler.my_jobs()} == {"7", "8_3"}
    assert {j.job_id for j in scheduler.my_jobs()} == {"7", "8_3"}
    assert scheduler.fallback == ""
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("what", ["hang:submit", "crash:submit", "exit:submit", "bug:submit"])
def test_a_submission_that_may_have_happened_is_never_repeated(
    fake: Fake, tmp_path: Path, called: Path, what: str
) -> None:
    log = tmp_path / "log"
    scheduler = fake(what, FAKE_PYSLURM_LOG=str(log))
    with pytest.raises(SubmitUnknown, match="during the submission"):
        scheduler.submit(script(tmp_path, "--nodes=1"))
    assert log.read_text().split().count("submit") == 1
    assert commands_called(called) == []


@pytest.mark.parametrize("what", ["no-import", "dies-on-import"])
def test_one_that_cannot_have_happened_goes_to_sbatch(
    fake: Fake, tmp_path: Path, called: Path, what: str
) -> None:
    assert fake(what).submit(script(tmp_path, "--nodes=1")) == "815"
    assert commands_called(called) == ["sbatch"]


def test_what_pyslurm_does_not_understand_goes_to_sbatch(fake: Fake, tmp_path: Path, called: Path) -> None:
    scheduler = fake("picky:submit")
    assert scheduler.submit(script(tmp_path, "--nodes=1")) == "815"
    assert commands_called(called) == ["sbatch"]
    assert scheduler.fallback == ""  # the rest goes on through pyslurm


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("B:USR1@120", "B:SIGUSR1@120"),
        ("usr2", "SIGUSR2"),
        ("SIGTERM@30", "SIGTERM@30"),
        ("10@60", "10@60"),
        ("RB:HUP", "RB:SIGHUP"),
    ],
)
def test_signals_by_their_whole_names(given: str, said: str) -> None:
    assert slurm_api._value("signal", given) == said


def test_a_refusal_is_explained_with_what_was_printed(fake: Fake, tmp_path: Path, called: Path) -> None:
    with pytest.raises(SchedulerError) as caught:
        fake("refuse:submit").submit(script(tmp_path, "--nodes=1"))
    assert type(caught.value) is SchedulerError
    assert "Invalid partition name" in caught.value.message
    assert "QOSMaxNodePerUserLimit" in caught.value.message
    assert "gpt-tune clusters" in caught.value.hint
    assert commands_called(called) == []


def test_a_controller_that_is_away_is_not_pyslurms_fault(fake: Fake, tmp_path: Path) -> None:
    scheduler = fake("lost")
    with pytest.raises(Unreachable):
        scheduler.my_jobs()
    with pytest.raises(SubmitUnknown):
        scheduler.submit(script(tmp_path, "--nodes=1"))
    assert scheduler.fallback == ""
    with pytest.raises(Unreachable):
        fake("down").check_reachable()


def test_another_versions_pyslurm_is_not_used(fake: Fake, called: Path) -> None:
    scheduler = fake(FAKE_PYSLURM_VERSION="25.11.2")
    scheduler.my_jobs()
    assert "for Slurm 25.11, and this is 22.05.8" in scheduler.fallback
    assert commands_called(called)[0].endswith("squeue")


def test_hold_release_requeue_signal(
    fake: Fake, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = fake(FAKE_PYSLURM_LOG=str(tmp_path / "did"))
    scheduler._signal("7", "USR1", "script")
    scheduler._signal("7", "TERM", "all")
    assert (tmp_path / "did").read_text().splitlines() == ["signal SIGUSR1 batch", "signal SIGTERM all"]
    with pytest.raises(SchedulerError, match="Invalid job id"):
        scheduler._signal("99", "USR1", "script")
    assert commands_called(called) == []
    scheduler.release("7")
    scheduler._hold("7")  # the library would die
    scheduler.requeue("7")  # only scontrol tells what became of each task
    assert [Path(c).name for c in commands_called(called)] == ["scontrol"] * 3
    with pytest.raises(SchedulerError, match="does not know"):
        scheduler.signal("9", "USR1")  # the library would say nothing
    assert scheduler.fallback == ""


@pytest.mark.parametrize("what", ["crash", "hang"])
def test_a_library_that_dies_over_a_change(fake: Fake, called: Path, what: str) -> None:
    scheduler = fake(what)
    scheduler._signal("7", "USR1", "script")
    assert scheduler.fallback
    assert commands_called(called)[0].endswith("scancel")


def test_cancel(fake: Fake, called: Path) -> None:
    scheduler = fake()
    scheduler.cancel("7")
    scheduler.cancel("99")  # ended and forgotten: fine
    assert commands_called(called) == []
    scheduler.cancel("8_3")
    assert commands_called(called)[0].endswith("scancel")


def test_the_process_ends_with_its_owner(fake: Fake) -> None:
    scheduler = fake()
    scheduler.my_jobs()
    process = scheduler._helper._process
    assert process is not None
    assert processes.is_alive(process.pid)
    del scheduler
    wait_until(lambda: not processes.is_alive(process.pid), 10, "the helper's end")


def test_a_setting_forces_a_way(fake: Fake, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpt_tune import clusters
    from gpt_tune.errors import UserError

    fake()
    (home / "slurm.conf").write_text("ClusterName=toy\n")
    monkeypatch.setenv("SLURM_CONF", str(home / "slurm.conf"))
    monkeypatch.setenv("GPT_TUNE_SLURM", "api")
    assert clusters.connect("toy").kind == "slurm_api"
    monkeypatch.setenv("GPT_TUNE_SLURM", "cli")
    assert clusters.connect("toy").kind == "slurm_cli"
    monkeypatch.setenv("GPT_TUNE_SLURM", "ap")
    with pytest.raises(UserError, match="cli or api"):
        clusters.connect("toy")
    fake("no-import")
    monkeypatch.setenv("GPT_TUNE_SLURM", "api")
    with pytest.raises(SchedulerError, match="cannot be imported"):
        clusters.connect("toy")


def test_the_helper_never_sees_an_allocation(fake: Fake, tmp_path: Path) -> None:
    target = tmp_path / "description"
    scheduler = fake(FAKE_PYSLURM_DESCRIPTION=str(target), SLURM_MEM_PER_NODE="1", SLURM_JOB_ID="3")
    scheduler.submit(script(tmp_path, "--nodes=1"))
    assert not [k for k in json.loads(target.read_text())["environment"] if k.startswith("SLURM_M")]
    assert "SLURM_JOB_ID" in os.environ
