"""A script or command of the user's own runs as it would by itself, and can be followed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Custom, Environment, Profile, Site, Training
from gpt_tune.recipes import directives
from tests.recipes import stubs
from tests.recipes.specs import job, put

SCRIPT = """#!/bin/bash
#SBATCH -N 2 --ntasks-per-node 4   # a comment
#SBATCH --gres=gpu:b200:4 -o out/%j.log
#SBATCH --error=err/%j.log
#SBATCH --job-name "my job"
#SBATCH --exclusive
##SBATCH --account=not-this

echo "in $PWD, submitted from $SLURM_SUBMIT_DIR"
exit ${CODE:-0}
#SBATCH --time=99
"""


def custom(run_dir: Path, text: str = SCRIPT, name: str = "train job.sbatch", **changes: Any) -> Any:
    """A rendered custom job for a script."""
    script = run_dir.parent / "their scripts" / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(text)
    profile = Profile(name="mine", recipe="custom", custom=Custom(script=str(script)))
    return recipes.render(job(run_dir, profile, **changes))


def options(rendered: Any) -> list[str]:
    text = rendered.files[0].content.decode()
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def run(script: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    return subprocess.run(
        ["bash", str(script)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_scripts_own_options_win_except_where_the_log_goes(tmp_path: Path) -> None:
    site = Site(partition="dev", account="site-account", time_limit="30")
    rendered = custom(tmp_path / "run", site=site, gpus=8, gpus_per_node=8)
    found = options(rendered)
    assert f"--output={tmp_path}/run/logs/%x-%j.out" in found
    assert not any(o.startswith(("--error", "--signal", "--ntasks=")) for o in found)
    for option in (
        "--nodes=2", "--ntasks-per-node=4", "--gres=gpu:b200:4", '--job-name="my job"', "--exclusive",
        "--partition=dev", "--account=site-account", "--time=30", "--comment=tok-1234", "--open-mode=append",
    ):  # fmt: skip
        assert option in found, option
    names = [o.split("=")[0] for o in found]
    assert len(names) == len(set(names))
    assert rendered.summary["name"] == "my job"
    assert (rendered.summary["nodes"], rendered.summary["gpus"]) == (2, 8)


def test_a_script_without_sizes_gets_the_jobs(tmp_path: Path) -> None:
    rendered = custom(tmp_path / "run", "#!/bin/bash\necho x\n", gpus=16, gpus_per_node=8, nodes=2)
    found = options(rendered)
    assert {"--nodes=2", "--ntasks=16", "--gres=gpu:8", "--job-name=mine"} <= set(found)


def test_it_runs_where_it_lives_and_its_code_is_the_jobs(tmp_path: Path) -> None:
    script = put(custom(tmp_path / "run"), tmp_path / "run")
    done = run(script, CODE="3")
    home = tmp_path / "their scripts"
    assert f"in {home}, submitted from {home}" in done.stdout
    assert done.returncode == 3
    assert (tmp_path / "run" / "exit_code").read_text() == "3\n"
    assert '"token":"tok-1234"' in (tmp_path / "run" / "started").read_text()


def test_its_shebang_counts(tmp_path: Path) -> None:
    text = "#!/usr/bin/env python3\n#SBATCH --nodes=1\nimport sys\nprint('python', sys.argv[0][-9:])\n"
    script = put(custom(tmp_path / "run", text, "train.py"), tmp_path / "run")
    assert "python /train.py" in run(script).stdout


def test_signals_reach_it_as_they_are(tmp_path: Path) -> None:
    text = "#!/bin/bash\ntrap 'echo got USR1; exit 5' USR1\necho ready\nwhile true; do sleep 0.1; done\n"
    script = put(custom(tmp_path / "run", text), tmp_path / "run")
    process = subprocess.Popen(
        ["bash", str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=30)
    assert "got USR1" in output
    assert process.returncode == 5


def test_a_killed_script_is_not_a_success(tmp_path: Path) -> None:
    script = put(custom(tmp_path / "run", "#!/bin/bash\nkill -KILL $$\n"), tmp_path / "run")
    assert run(script).returncode == 137


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo no shebang\n", "does not start with #!"),
        ("#!/bin/bash\r\necho x\r\n", "Windows line ends"),
        ("#!/bin/bash\n#SBATCH --array=1-4\n", "a job array (--array)"),
        ("#!/bin/bash\n#SBATCH --job-name='open\n", "Line 2 of the script has an unclosed quote"),
    ],
)
def test_scripts_that_cannot_be_followed_are_refused(tmp_path: Path, text: str, words: str) -> None:
    script = tmp_path / "x.sh"
    script.write_bytes(text.encode())
    profile = Profile(recipe="custom", custom=Custom(script=str(script)))
    (problem,) = recipes.get("custom").problems(profile)
    assert words in problem
    with pytest.raises(UserError):
        recipes.render(job(tmp_path / "run", profile))


@pytest.mark.parametrize(
    ("custom_", "words"),
    [
        (Custom(), "needs custom.script (a path) or custom.command"),
        (Custom(script="/a", command="b"), "exclude each other"),
        (Custom(script="/nowhere/x.sh"), "'/nowhere/x.sh' cannot be read"),
        (Custom(command="python train.py > log"), "holds '>', which only a shell understands"),
    ],
)
def test_choices_that_cannot_run_are_refused(custom_: Custom, words: str) -> None:
    assert words in recipes.get("custom").problems(Profile(recipe="custom", custom=custom_))[0]


def test_a_command_runs_once_with_the_sites_software(tmp_path: Path) -> None:
    venv = tmp_path / "my venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python3").symlink_to("/bin/true")
    (venv / "bin" / "hello").write_text('#!/bin/bash\nprintf "%s|" "$VIRTUAL_ENV" "$@"\n')
    (venv / "bin" / "hello").chmod(0o755)
    profile = Profile(recipe="custom", custom=Custom(command='hello "two words" last'))
    site = Site(environment=Environment(kind="venv", path=str(venv)))
    script = put(recipes.render(job(tmp_path / "run", profile, site=site)), tmp_path / "run")
    assert run(script).stdout.endswith(f"{venv}|two words|last|")


def test_a_command_in_an_apptainer_image(tmp_path: Path) -> None:
    profile = Profile(recipe="custom", custom=Custom(command="recorder a"))
    site = Site(environment=Environment(kind="apptainer", image="docker://x", mounts=("/data",)))
    script = put(recipes.render(job(tmp_path / "run", profile, site=site)), tmp_path / "run")
    outcome = stubs.run(script, tmp_path / "start")
    (call,) = outcome.calls("apptainer")
    assert call == [
        "exec",
        "--bind",
        f"{tmp_path}/run:{tmp_path}/run,/data:/data",
        "docker://x",
        "recorder",
        "a",
    ]
    with pytest.raises(UserError, match="pyxis"):
        recipes.render(
            job(tmp_path / "b", profile, site=Site(environment=Environment(kind="pyxis", image="x.sqsh")))
        )


def test_flops_are_known_when_the_batch_is(tmp_path: Path) -> None:
    profile = Profile(
        recipe="custom", custom=Custom(command="true"), training=Training(global_batch_size=8, iterations=7)
    )
    prediction = recipes.render(job(tmp_path, profile)).prediction
    assert prediction.step_seconds is None
    assert prediction.tokens_per_step == 8 * 128
    assert prediction.total_steps == 7
    assert prediction.model_flops_per_step is not None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH --nodes=4", {"nodes": "4"}),
        ("#SBATCH --nodes 4 --exclusive", {"nodes": "4", "exclusive": ""}),
        ("#SBATCH -N4 -n 8 -p dev", {"nodes": "4", "ntasks": "8", "partition": "dev"}),
        ("#SBATCH --requeue word -t 1:00", {"requeue": "", "time": "1:00"}),
        ("#SBATCH --comment='a # b' # c", {"comment": "a # b"}),
        ("#SBATCH --exclusive=user --mem=0", {"exclusive": "user", "mem": "0"}),
        ("##SBATCH --nodes=4", {}),
        (" #SBATCH --nodes=4", {}),
        ("echo\n#SBATCH --nodes=4", {}),
        ("#SBATCH --nodes=1\n#SBATCH --nodes=2", {"nodes": "2"}),
    ],
)
def test_directives_are_read_as_sbatch_does(line: str, expected: dict[str, str]) -> None:
    assert directives.read("#!/bin/bash\n" + line + "\n") == expected


@pytest.mark.parametrize(
    ("options_", "gpus"),
    [
        ({"gres": "gpu:8"}, 8),
        ({"gres": "gpu:b200:4"}, 4),
        ({"gres": "gpu"}, 1),
        ({"gres": "shard:2,gpu:a100:2(S:0-1)"}, 2),
        ({"gpus-per-node": "h100:8"}, 8),
        ({"gpus": "16", "nodes": "2"}, 8),
        ({"nodes": "2"}, None),
    ],
)
def test_gpus_a_script_asks_for(options_: dict[str, str], gpus: int | None) -> None:
    assert directives.gpus_per_node(options_) == gpus


def test_what_a_job_prints_is_not_delayed(tmp_path: Path) -> None:
    text = "#!/bin/bash\necho early\nread -r -t 30 _ <> <(:)\n"
    script = put(custom(tmp_path / "run", text), tmp_path / "run")
    process = subprocess.Popen(
        ["bash", str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    begin = time.monotonic()
    assert process.stdout.readline() == "early\n"
    assert time.monotonic() - begin < 20
    process.terminate()
    process.communicate(timeout=30)
