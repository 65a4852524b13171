"""What our own job scripts refuse is a finding with the setting to change: every sentence of the templates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpt_tune.diagnosis import diagnose, diagnose_lines
from gpt_tune.resources import data_dir

RECIPES = ("acs", "common", "llama2-finetune", "megatron-deepspeed", "megatron-lm", "qlora", "smoke")
# What preflight found (it has words of its own); docker.sh's and a configuration file's are no job's.
ELSEWHERE = ("${said##", "Pods of ACS", "IMAGE is empty", "$DOCKER", "{{ prefetch }}")
TALK = [
    "job 7: ranks 8, nodes 1, start 0, first node b200-1",
    "job 7: TP=3 comes from the environment",
    "job 7: continuing from iteration 400 of /shared/checkpoints",
    "job 7: 8 ranks x 1 examples x 4 accumulation steps = 32 examples a step",
    "job 7: received SIGUSR1, telling the trainer to save and stop",
]


def sentences() -> list[str]:
    """Each refusal as a job would print it."""
    found = []
    for recipe in RECIPES:
        for path in sorted(Path(data_dir("templates"), recipe).glob("*.j2")):
            for said in re.findall(
                r'\bfail "(.*)"(?: \S+)?(?: ;;)?(?:; \})?$', path.read_text(), re.MULTILINE
            ):
                if not said.startswith(ELSEWHERE):
                    found.append(_printed(said))
    return sorted(set(found))


def _printed(said: str) -> str:
    said = re.sub(r"\{\{.*?\}\}", "8", said)
    said = re.sub(r"\$\(\(.*\)\)|\$\(.*?\)\"?", "16", said)
    said = re.sub(r"\$(?:1|name)\b", "LAYERS", said)
    value = {True: "/shared/some where", False: "3"}
    return re.sub(r"\$\{?!?(\w+)[^}\s'/.,;:=]*\}?", lambda m: value["PATH" in m[1] or "DIR" in m[1]], said)


def test_there_are_sentences() -> None:
    assert len(sentences()) > 40


@pytest.mark.parametrize("said", sentences())
def test_every_refusal_is_known(said: str) -> None:
    root = diagnose_lines([*TALK, f"job 7: {said}"]).root_cause
    assert root is not None
    assert re.fullmatch(r"F26[0-5]", root.id)
    assert said.rstrip(".")[:60] in root.text
    assert root.fix
    assert root.line == len(TALK) + 1


@pytest.mark.parametrize(
    ("said", "identity", "setting"),
    [
        (
            "/shared/md holds no pretrain_gpt.py: it is not a Megatron-DeepSpeed checkout.",
            "F260",
            "trainer.path",
        ),
        ("There is no readable /d/x.idx and .bin: the data is the prefix of both.", "F261", "training.data"),
        ("/w holds no config.json: it is no folder of Hugging Face weights.", "F262", "finetune.weights"),
        ("There is no checkpoint to load: /c has no file 'latest'.", "F263", "training.load"),
        ("apptainer is not installed on this node.", "F264", "site.environment"),
        ("PP=9, but the model has 8 layers; use at most 8.", "F265", "PP"),
    ],
)
def test_the_setting_to_change(tmp_path: Path, said: str, identity: str, setting: str) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join([*TALK, f"job 20.1: {said}"]) + "\n")
    root = diagnose([log], "FAILED", exit_code=2).root_cause
    assert root is not None
    assert root.id == identity
    assert setting in root.fix


@pytest.mark.parametrize(
    "text",
    [
        *TALK,
        "a job 7: /x holds no pretrain_gpt.py",
        "ValueError: hidden_size is not a multiple of 3",
        "job 7:",
        "job : ",
    ],
)
def test_what_is_no_refusal_of_ours(text: str) -> None:
    assert not any(f.id.startswith("F26") for f in diagnose_lines([text]).findings)
