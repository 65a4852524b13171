"""The Kubernetes manifest: read back by YAML parsers and by the kubelet's own expansion, nothing has changed."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpt_tune import recipes
from gpt_tune.errors import UserError
from gpt_tune.profiles.acs import Acs
from gpt_tune.profiles.schema import Environment, Site, Training
from gpt_tune.recipes import acs_manifest, acs_yaml
from tests.recipes.acs_support import IMAGE, SCRIPT, acs_job
from tests.recipes.test_hostile import VALUES

_LOAD = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin.buffer.read()))))"


def _has_yaml(python: str) -> bool:
    done = subprocess.run([python, "-c", "import yaml"], capture_output=True, check=False)
    return done.returncode == 0


# PyYAML is no dependency of ours: any Python of this machine that has it will do.
YAML_PYTHON = next(
    (p for p in (sys.executable, "/usr/bin/python3", shutil.which("python3") or "") if p and _has_yaml(p)),
    None,
)


def parsed(text: bytes) -> list[Any]:
    """The documents, as a YAML parser that is not ours reads them; as our own reader does where there is none."""
    ours = [_document(lines) for lines in _documents(text.decode())]
    if YAML_PYTHON is not None:
        done = subprocess.run([YAML_PYTHON, "-c", _LOAD], input=text, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        theirs = json.loads(done.stdout)
        assert theirs == ours
    return ours


def _documents(text: str) -> list[list[str]]:
    assert text.endswith("\n")
    return [part.strip("\n").split("\n") for part in re.split(r"^---$", text, flags=re.MULTILINE)[1:]]


def _document(lines: list[str]) -> Any:
    """Block mappings and lists of quoted scalars: the part of YAML that manifests use."""
    value, rest = _node(lines, 0)
    assert rest == []
    return value


def _node(lines: list[str], depth: int) -> tuple[Any, list[str]]:
    pad = "  " * depth
    if lines[0].startswith(pad + "- "):
        found = []
        while lines and lines[0].startswith(pad + "- "):
            item = lines[0].removeprefix(pad + "- ")
            if re.match(r"\w[\w./-]*:(?: |$)", item):
                value, lines = _node([f"{pad}  {item}", *lines[1:]], depth + 1)
                found.append(value)
            else:
                found.append(_scalar(item))
                lines = lines[1:]
        return found, lines
    table: dict[str, Any] = {}
    while lines and re.match(rf"{pad}[\w\"]", lines[0]):
        key, _, rest = lines[0].removeprefix(pad).partition(":")
        lines = lines[1:]
        if rest:
            table[key] = _scalar(rest.strip())
        else:
            table[key], lines = _node(lines, depth + 1)
    return table, lines


def _scalar(text: str) -> Any:
    if text.startswith('"'):
        return re.sub(
            r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(.))",
            lambda m: (
                chr(int(m[1] or m[2], 16))
                if m[1] or m[2]
                else {"n": "\n", "t": "\t", "r": "\r"}.get(m[3], m[3])
            ),
            text[1:-1],
        )
    return {"true": True, "false": False, "{}": {}, "[]": []}.get(text) if not text.isdigit() else int(text)


def kubelet(word: str) -> str:
    """What a pod gets: $(NAME) is filled in, $$ is a dollar (kubernetes third_party/forked/golang/expansion)."""
    found, at = [], 0
    while at < len(word):
        if word[at] == "$" and at + 1 < len(word):
            if word[at + 1] == "$":
                found.append("$")
                at += 2
                continue
            if word[at + 1] == "(" and ")" in word[at + 2 :]:
                end = word.index(")", at + 2)
                found.append(f"<{word[at + 2 : end]}>")
                at = end + 1
                continue
        found.append(word[at])
        at += 1
    return "".join(found)


def manifest(acs: Acs = SCRIPT, **changes: Any) -> list[Any]:
    files = recipes.render(acs_job("/fsx/runs/r1", acs, **changes)).files
    return parsed(next(f.content for f in files if f.path == "pytorchjob.yaml"))


def container(documents: list[Any], replica: str = "Master") -> dict[str, Any]:
    found: dict[str, Any] = pod(documents, replica)["spec"]["containers"][0]
    return found


def pod(documents: list[Any], replica: str = "Master") -> dict[str, Any]:
    found: dict[str, Any] = documents[-1]["spec"]["pytorchReplicaSpecs"][replica]["template"]
    return found


def test_one_pod() -> None:
    documents = manifest()
    config, job = documents
    assert (config["kind"], job["kind"], job["apiVersion"]) == ("ConfigMap", "PyTorchJob", "kubeflow.org/v1")
    assert config["metadata"] == job["metadata"] == {"name": "acs-job", "namespace": "default"}
    assert job["spec"]["nprocPerNode"] == "8"
    assert set(job["spec"]["pytorchReplicaSpecs"]) == {"Master"}
    assert pod(documents)["metadata"]["labels"] == {"alibabacloud.com/compute-class": "gpu"}
    main = container(documents)
    assert (main["name"], main["image"]) == ("pytorch", IMAGE)
    assert main["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "eth0"} in main["env"]
    assert "/etc/gpt-tune/ds_config.json" in main["command"]
    assert json.loads(config["data"]["ds_config.json"])["zero_optimization"]["stage"] == 3


def test_several_whole_hosts() -> None:
    documents = manifest(
        dataclasses.replace(SCRIPT, gpu_model="L20X", driver="580.95.05", volume_claim="fsx", secret_name="keys"),
        gpus=64, per_node=16, profile={"training": Training(global_batch_size=128, checkpoint_interval=10)},
    )  # fmt: skip
    specs = documents[-1]["spec"]["pytorchReplicaSpecs"]
    assert {k: v["replicas"] for k, v in specs.items()} == {"Master": 1, "Worker": 3}
    assert documents[-1]["spec"]["nprocPerNode"] == "16"
    for replica in specs:
        template = pod(documents, replica)
        # Reserved hosts are chosen by a selector; labels ask for on-demand ones.
        assert template["metadata"]["labels"] == {"alibabacloud.com/compute-class": "gpu-hpn"}
        assert template["spec"]["nodeSelector"] == {"alibabacloud.com/gpu-model-series": "L20X"}
        main = container(documents, replica)
        assert {"name": "NCCL_SOCKET_IFNAME", "value": "hpn0"} in main["env"]
        assert main["envFrom"] == [{"secretRef": {"name": "keys"}}]
        assert {"name": "run", "mountPath": "/fsx/runs/r1"} in main["volumeMounts"]
        words = main["command"]
        assert words[words.index("--gradient_accumulation_steps") + 1] == "2"


def test_on_demand_pods_say_model_and_driver() -> None:
    acs = dataclasses.replace(SCRIPT, gpu_model="L20", driver="575.64.05")
    labels = pod(manifest(acs))["metadata"]["labels"]
    assert labels["alibabacloud.com/gpu-model-series"] == "L20"
    assert labels["alibabacloud.com/gpu-driver-version"] == "575.64.05"
    assert "nodeSelector" not in pod(manifest(acs))["spec"]


def test_the_benchmark_needs_no_configuration() -> None:
    documents = manifest(Acs(checkpoint_optimization=True))
    assert len(documents) == 1
    assert container(documents)["command"] == ["ljperf", "benchmark", "--model", "deepspeed/llama3-8b"]
    assert {"name": "CHECKPOINT_OPTIMIZATION", "value": "true"} in container(documents)["env"]
    assert "nprocPerNode" not in documents[0]["spec"]


@pytest.mark.parametrize("kind", VALUES)
def test_hostile_text_survives_yaml_and_the_kubelet(kind: str) -> None:
    value = VALUES[kind]
    acs = dataclasses.replace(SCRIPT, arguments=("--text", value, ""), script=f"/workspace/{value}")
    site = Site(run_root="/fsx", environment=Environment(variables={"MY_VALUE": value}))
    try:
        documents = manifest(acs, site=site, profile={"name": value})
    except UserError:
        assert kind == "nul"
        return
    main = container(documents)
    words = [kubelet(w) for w in main["command"]]
    assert words[3:7] == [f"/workspace/{value}", "--text", value, ""]
    given = {e["name"]: kubelet(e["value"]) for e in main["env"]}
    assert given["MY_VALUE"] == value
    name = documents[-1]["metadata"]["name"]
    assert re.fullmatch(r"[a-z](?:[a-z0-9-]*[a-z0-9])?", name)
    assert len(f"{name}-worker-999") <= 63


ODD = ["", " ", "~", "null", "yes", "0x10", "1e3", ": ", "- ", "? x", "&a *a", "!tag", "%YAML", "---", "...", "'", '"',
       "\\x41", "\x00\x01\x07\x0b\x1b\x7f", "\x80\x85\x9f\xa0", "\u2028\u2029", "\ufeff\ufffe\uffff", "\ud7ff\ue000",
       "🚀 漢字", "\t\ttabs", "a\r\nb", "$(HOME) $$ $", "x" * 5000, "# no comment", "{a: b}", "[1, 2]"]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_any_text_is_the_same_when_read_back(value: str) -> None:
    assert parsed(acs_yaml.dump({"a": value, "b": [value, {"c": value}], "d": {}, "e": []})) == [
        {"a": value, "b": [value, {"c": value}], "d": {}, "e": []}
    ]


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UserError, match="Unicode"):
        acs_yaml.dump({"a": "\ud800"})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My Run!", "my-run"),
        ("", "job"),
        ("123", "job-123"),
        ("漢字", "job"),
        ("a" * 99, "a" * 48),
        ("-x-", "x"),
    ],
)
def test_names_are_made_for_kubernetes(text: str, name: str) -> None:
    assert acs_manifest.dns_name(text) == name


def test_the_parser_that_is_not_ours_is_used_here() -> None:
    if YAML_PYTHON is None:
        pytest.skip("no Python with PyYAML on this machine: our own reader judged alone")
    assert Path(YAML_PYTHON).exists()
