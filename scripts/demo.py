"""The whole path without a keyboard: plan, submit a real training, follow it, read its log, save the result.

Runs the commands a user would type, shows each, and stops at the first that fails. Works in a folder of its
own, so it neither reads nor changes the user's profiles and history.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from typing import Any

SECONDS = 15


def gpt_tune(*arguments: str, quiet: bool = False) -> str:
    """Run one command, show it and what it prints. Exits with its code when it fails."""
    print(f"\n$ gpt-tune {shlex.join(arguments)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "tui", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if not quiet:
        print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpt-tune-demo-") as folder:
        os.environ.update(XDG_CONFIG_HOME=f"{folder}/config", XDG_STATE_HOME=f"{folder}/state")
        gpt_tune("clusters")
        gpt_tune("plan", "--model", "gpt-145b", "--gpus", "64", "--gpu", "b200", "--top", "3")
        text = gpt_tune("submit", "smoke", "--set", f"smoke.seconds={SECONDS}", "--yes", "--json", quiet=True)
        job: dict[str, Any] = json.loads(text)
        print(f"run {job['run_id']} is job {job['job_id']} on {job['cluster']}")
        gpt_tune("watch", job["run_id"])
        gpt_tune("jobs")
        summary = json.loads(gpt_tune("parse", *job["log_paths"], "--json", quiet=True))["summary"]
        print(
            f"{summary['steps']} steps, median {summary['median_step_time_ms']:.1f} ms, "
            f"loss {summary['first_loss']:.2f} -> {summary['last_loss']:.2f}"
        )
        if not summary["last_loss"] < summary["first_loss"]:
            sys.exit("The loss did not fall: this machine did not really train.")


if __name__ == "__main__":
    main()
