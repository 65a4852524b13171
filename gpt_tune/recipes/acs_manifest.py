"""Owns the Kubernetes manifest of an acs job: a PyTorchJob of Kubeflow's training operator, and its configuration.

Sources: kubeflow/training-operator v1.8.1 (names of the replica specs and of the container, nprocPerNode as text);
Alibaba Cloud ACS, "Specify GPU models and driver versions for ACS GPU pods" (labels and the node selector).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_tune.errors import UserError, shown
from gpt_tune.profiles.acs import Acs
from gpt_tune.recipes import acs_yaml

CONFIG_FOLDER = "/etc/gpt-tune"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DNS = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# A job's pods are called NAME-worker-12: the whole may have 63 characters.
_LONGEST_NAME = 48


@dataclass(frozen=True, slots=True)
class Pods:
    """What the pods of a job run. several: the program is started once a pod and finds the others by itself."""

    name: str
    image: str
    command: Sequence[str]
    variables: Mapping[str, str]
    gpus_per_pod: int
    pods: int
    run_dir: str
    files: Mapping[str, str]  # name to content, mounted at CONFIG_FOLDER
    several: bool = True


def problems(acs: Acs) -> list[str]:
    """Sentences about choices that Kubernetes would refuse."""
    found = []
    for key, value in (
        ("namespace", acs.namespace),
        ("volume_claim", acs.volume_claim),
        ("secret_name", acs.secret_name),
    ):
        if (value or key == "namespace") and not _DNS.fullmatch(value):
            found.append(
                f"acs.{key} is {shown(value)}; Kubernetes wants lower-case letters, digits and dashes."
            )
    if acs.gpu_model and not _LABEL_VALUE.fullmatch(acs.gpu_model):
        found.append(f"acs.gpu_model is {shown(acs.gpu_model)}, which is no value of a Kubernetes label.")
    return found


def manifest(acs: Acs, pods: Pods) -> bytes:
    """The YAML that `kubectl apply -f` takes. UserError for names that Kubernetes would refuse."""
    for sentence in problems(acs):
        raise UserError(sentence, "Change it in the profile.")
    name = dns_name(pods.name)
    documents = []
    if pods.files:
        documents.append(_config_map(name, acs, pods.files))
    documents.append(_job(name, acs, pods))
    return acs_yaml.dump(*documents)


def dns_name(text: str) -> str:
    """A name that Kubernetes takes, made of any."""
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return safe if safe and safe[0].isalpha() else f"job-{safe}".strip("-")


def literal(word: str) -> str:
    """A word of a command or a variable, safe from the kubelet's own $(NAME): every dollar is doubled."""
    return word.replace("$", "$$")


def compute_class(acs: Acs, pods: Pods) -> str:
    """gpu-hpn where pods are whole hosts or several, else gpu."""
    return acs.compute_class or ("gpu-hpn" if pods.gpus_per_pod > 8 or pods.pods > 1 else "gpu")


def _config_map(name: str, acs: Acs, files: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": acs.namespace},
        "data": dict(files),
    }


def _job(name: str, acs: Acs, pods: Pods) -> dict[str, Any]:
    replicas: dict[str, Any] = {"Master": _replica(1, name, acs, pods)}
    if pods.pods > 1:
        replicas["Worker"] = _replica(pods.pods - 1, name, acs, pods)
    spec: dict[str, Any] = {"runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0}}
    if pods.several:
        spec["nprocPerNode"] = str(pods.gpus_per_pod)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": acs.namespace},
        "spec": {**spec, "pytorchReplicaSpecs": replicas},
    }


def _replica(replicas: int, name: str, acs: Acs, pods: Pods) -> dict[str, Any]:
    kind = compute_class(acs, pods)
    labels = {"alibabacloud.com/compute-class": kind}
    spec: dict[str, Any] = {}
    if acs.gpu_model and kind == "gpu-hpn":
        spec["nodeSelector"] = {"alibabacloud.com/gpu-model-series": acs.gpu_model}
    elif acs.gpu_model:
        labels["alibabacloud.com/gpu-model-series"] = acs.gpu_model
    if acs.driver and kind == "gpu":
        labels["alibabacloud.com/gpu-driver-version"] = acs.driver
    spec["containers"] = [_container(acs, pods)]
    spec["volumes"] = _volumes(name, acs, pods)
    return {
        "replicas": replicas,
        "restartPolicy": "Never",
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def _container(acs: Acs, pods: Pods) -> dict[str, Any]:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    if pods.files:
        mounts.append({"name": "config", "mountPath": CONFIG_FOLDER})
    if acs.volume_claim:
        mounts.append({"name": "run", "mountPath": pods.run_dir})
    container: dict[str, Any] = {
        "name": "pytorch",
        "image": pods.image,
        "command": [literal(word) for word in pods.command],
        "env": [{"name": n, "value": literal(v)} for n, v in pods.variables.items()],
        "resources": {"limits": {"nvidia.com/gpu": str(pods.gpus_per_pod)}},
        "volumeMounts": mounts,
    }
    if acs.secret_name:
        container["envFrom"] = [{"secretRef": {"name": acs.secret_name}}]
    return container


def _volumes(name: str, acs: Acs, pods: Pods) -> list[dict[str, Any]]:
    # NCCL and data loaders share memory; a pod's own is 64 MiB.
    found: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if pods.files:
        found.append({"name": "config", "configMap": {"name": name}})
    if acs.volume_claim:
        found.append({"name": "run", "persistentVolumeClaim": {"claimName": acs.volume_claim}})
    return found
