"""Owns the acs recipe: jobs in Alibaba's image training-nv-pytorch, for Slurm, docker and Kubernetes at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.models.flops import model_flops
from gpt_tune.profiles.schema import Environment, Profile
from gpt_tune.recipes import (
    acs_manifest,
    acs_problems,
    acs_readme,
    acs_rules,
    preflight,
    qlora_choices,
    script,
)
from gpt_tune.recipes.acs_work import Work, resolve, seq_length, settings, trainer_flags
from gpt_tune.recipes.base import JobSpec, Prediction, Rendered, RenderedFile
from gpt_tune.recipes.network import Variable

_FOLDER = "acs"
_THREADS = Variable(
    "OMP_NUM_THREADS", "1", "Every rank would otherwise start a CPU thread for each core of the node."
)
_TELL = Variable("GPT_TUNE_NCCL_DEBUG", "INFO", "One rank a node logs which network NCCL chose.")


class AcsRecipe:
    """The image's benchmark, or a training script on Hugging Face's Trainer with the image's optimisations."""

    name = "acs"
    title = "Alibaba ACS: train or benchmark in training-nv-pytorch, with docker, Slurm or Kubernetes"
    planned = False

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices that the image's rules forbid."""
        return [
            *acs_problems.image_problems(profile.acs),
            *acs_problems.work_problems(profile),
            *acs_problems.pod_problems(profile),
        ]

    def render(self, spec: JobSpec) -> Rendered:
        """Files of the job: for Slurm, for docker and for Kubernetes."""
        problems = self.problems(spec.profile)
        if problems:
            raise UserError(problems[0], "Change it in the profile.")
        work = resolve(spec)
        inside = _inside(work)
        look = preflight.look(inside)
        values = script.common_values(inside, _mounts(work), look)
        values["container_variables"] = []  # the template passes its own
        values["environment"] = Environment()  # the image is checked where docker is not used instead of it
        variables = [
            (v.name, v.value, v.why)
            for v in ((_THREADS, _TELL) if spec.nodes > 1 else (_THREADS,))
            if v.name not in spec.site.environment.variables
        ]
        shared = {**values, **_values(work), "headline": headline(work)}
        job = rendering.render(
            f"{_FOLDER}/job.sbatch.j2",
            **shared,
            starter="sbatch job.sbatch",
            docker=False,
            variables=variables,
            # Also where it is rendered on a machine without GPUs: the job needs them wherever it runs.
            sbatch=script.sbatch_options(
                replace(spec, gpus=script.ranks(spec), gpus_per_node=spec.tasks_per_node),
                whole_nodes=_whole_nodes(spec),
                requeue=spec.profile.training.checkpoint_interval is not None,
            ),
        )
        docker = rendering.render(f"{_FOLDER}/docker.sh.j2", **shared, starter="bash docker.sh", docker=True)
        config = (
            ()
            if work.config is None
            else (RenderedFile("ds_config.json", rendering.json_bytes(work.config)),)
        )
        files = (
            RenderedFile(script.SCRIPT, job, executable=True),
            script.rank_file(),
            *preflight.files(look),
            RenderedFile("docker.sh", docker, executable=True),
            *config,
            RenderedFile("pytorchjob.yaml", acs_manifest.manifest(work.acs, _pods(work))),
            RenderedFile("README.md", acs_readme.readme(work, headline(work), settings(work))),
        )
        return Rendered(
            script=script.SCRIPT,
            files=files,
            log_paths=(script.log_pattern(spec),),
            prediction=_prediction(work),
            summary={
                **script.summary(spec, self.name, headline(work), variables, _warnings(work)),
                "environment": {**script.described(variables), **_variables(work)},
            },
        )


# -- values of the templates ----------------------------------------------------------------------
def _inside(work: Work) -> JobSpec:
    """The job as the shared parts of a script see it: in the image, whatever the site says."""
    environment = replace(
        work.spec.site.environment, kind=work.kind, image=work.slurm_image, path="", modules=()
    )
    return replace(work.spec, site=replace(work.spec.site, environment=environment))


def _mounts(work: Work) -> list[str]:
    return [work.save_dir] if work.scripted and work.training.checkpoint_dir else []


def _whole_nodes(spec: JobSpec) -> bool:
    node = qlora_choices.node_of(spec)
    return spec.nodes > 1 or (node is not None and spec.gpus_per_node >= node.gpus_per_node)


def _values(work: Work) -> dict[str, Any]:
    acs, rules = work.acs, acs_rules.data()
    interfaces = [(g, e["name"]) for e in rules["interface"] for g in e["gpus"]]
    names = ["NCCL_SOCKET_IFNAME", "CHECKPOINT_OPTIMIZATION"]
    own = [n for n in work.spec.site.environment.variables if n not in names]
    return {
        "work": acs.work,
        "settings": settings(work),
        "arguments": acs.arguments,
        "fixed_flags": trainer_flags(work.training),
        "own_config": bool(acs.deepspeed_config),
        "packages": acs.packages,
        "never_install": [p for p in rules["never_install"]["packages"] if p != "pytorch"],
        "interfaces": interfaces,
        "sizes": ", ".join(str(g) for g, _ in interfaces),
        "cuda": work.cuda,
        "driver": acs_rules.driver_for(work.cuda),
        "prefetch": acs_rules.PREFETCH,
        "docker_image": work.docker_image,
        "release": rendering.slug(acs.release, "unknown"),
        "gpus_per_node": work.spec.gpus_per_node,
        "mounts": script.mounts(work.spec, _mounts(work)),
        "passed": [*names, *(rendering.variable_name(n) for n in own)],
    }


def _variables(work: Work) -> dict[str, str]:
    found = {"NCCL_SOCKET_IFNAME": work.interface}
    if work.acs.checkpoint_optimization:
        found["CHECKPOINT_OPTIMIZATION"] = "true"
    return found


def _pods(work: Work) -> acs_manifest.Pods:
    acs, spec = work.acs, work.spec
    if work.scripted:
        config = f"{acs_manifest.CONFIG_FOLDER}/ds_config.json"
        interval = work.training.checkpoint_interval
        command = [
            "python3", "-m", "torch.distributed.run", acs.script, *acs.arguments, "--deepspeed", config,
            "--per_device_train_batch_size", str(acs.micro_batch_size),
            "--gradient_accumulation_steps", str(work.batch // (acs.micro_batch_size * script.ranks(spec))),
            "--max_steps", str(work.iterations), "--learning_rate", repr(float(work.training.learning_rate)),
            *(word for flag in trainer_flags(work.training) for word in flag),
            "--logging_steps", str(work.training.log_interval), "--output_dir", work.save_dir,
            *(["--save_strategy", "steps", "--save_steps", str(interval)] if interval else ["--save_strategy", "no"]),
            *(["--torch_compile", "True"] if acs.compile else []),
        ]  # fmt: skip
    else:
        command = ["ljperf", "benchmark", "--model", acs.benchmark]
    return acs_manifest.Pods(
        name=spec.profile.name or AcsRecipe.name,
        image=work.docker_image or work.slurm_image,
        command=command,
        variables={**spec.site.environment.variables, **_variables(work)},
        gpus_per_pod=spec.gpus_per_node,
        pods=spec.nodes,
        run_dir=spec.run_dir,
        files={} if work.config is None else {"ds_config.json": rendering.json_bytes(work.config).decode()},
        several=work.scripted,
    )


def headline(work: Work) -> str:
    """What the job is, in one line."""
    spec, acs = work.spec, work.acs
    where = f"{script.plural(script.ranks(spec), 'GPU')} of {script.plural(spec.nodes, 'node')}"
    if not work.scripted:
        return f"ACS benchmark: ljperf {rendering.slug(acs.benchmark, 'model')} on {where}, CUDA {work.cuda}."
    switches = f"compile {'on' if acs.compile else 'off'}, recompute optimisation {'on' if acs.checkpoint_optimization else 'off'}"  # noqa: E501
    name = rendering.slug(acs.script.rpartition("/")[2], "script")
    return f"ACS training: {name} on {where}, ZeRO {acs.zero_stage}, {switches}, {script.plural(work.iterations, 'step')}."  # noqa: E501


def _prediction(work: Work) -> Prediction:
    if not work.scripted:
        return Prediction(source="nothing is predicted for the image's own benchmark")
    length = seq_length(work.spec)
    tokens = work.batch * length
    return Prediction(
        model_flops_per_step=model_flops(work.spec.model, length, tokens),
        tokens_per_step=tokens,
        total_steps=work.iterations,
        source="the profile's model, batch and sequence length; no time is predicted for a script of the user's own",
    )


def _warnings(work: Work) -> list[str]:
    found = []
    if work.spec.gpus == 0:
        found.append("No GPU was found here: the image starts, and its programs will want one.")
    if not work.docker_image:
        found.append(
            f"The tag of release {work.acs.release} is not known: docker.sh needs IMAGE, pytorchjob.yaml another image."
        )
    if work.scripted and not work.acs.volume_claim and work.training.checkpoint_interval:
        found.append("acs.volume_claim is empty: pods of pytorchjob.yaml would lose their checkpoints.")
    return found
