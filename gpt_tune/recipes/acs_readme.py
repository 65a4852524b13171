"""Owns the README of an acs run folder: what the image asks for, and the three ways to start it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpt_tune import rendering
from gpt_tune.recipes import acs_rules, script

if TYPE_CHECKING:
    from gpt_tune.recipes.acs_work import Work


def rules(work: Work) -> list[str]:
    """The image's rules, as they hold for this job."""
    driver = acs_rules.driver_for(work.cuda)
    branches = (
        f"; on data-centre GPUs also {', '.join(driver.branches)} of their branches"
        if driver.branches
        else ""
    )
    never = acs_rules.data()["never_install"]
    found = [
        f"Driver {driver.minimum} or newer for CUDA {work.cuda}{branches}. The job looks before it starts.",
        f"NCCL_SOCKET_IFNAME={work.interface}, because a pod has {script.plural(work.spec.gpus_per_node, 'GPU')} "
        "(eth0 for 1, 2, 4 and 8, hpn0 for a whole host with 16).",
        f"Never install torch or deepspeed: {never['why']}. acs.packages are put beside the image's, alone.",
    ]
    if work.scripted:
        found.append(f'{acs_rules.PREFETCH} stays absent or "auto" in the DeepSpeed configuration.')
    return found


def readme(work: Work, headline: str, settings: list[tuple[str, Any, str]]) -> bytes:
    """README.md of the run folder."""
    spec, acs = work.spec, work.acs
    facts = [
        ("profile", spec.profile.name or "(unnamed)"),
        ("image", work.docker_image or work.slurm_image),
        ("image for Slurm", work.slurm_image),
        ("where", script.where_words(spec)),
    ]
    if work.scripted:
        facts += [("script", acs.script), ("steps", str(work.iterations))]
    config = [("ds_config.json", "DeepSpeed's configuration; the job writes its own copy with its id")]
    return rendering.render(
        "acs/README.md.j2",
        name=spec.profile.name or "ACS run",
        headline=headline,
        run_id=spec.run_id,
        facts=facts,
        rules=rules(work),
        work=acs.work,
        volume_claim=acs.volume_claim,
        gpus_per_node=spec.gpus_per_node,
        overrides=settings,
        rechecked="The scripts check these before they start anything.",
        files=[
            ("job.sbatch", "the job for Slurm; on one machine it hands over to docker.sh"),
            ("docker.sh", "the same with docker"),
            ("pytorchjob.yaml", "the same for Kubeflow's training operator"),
            ("rank.sh", "what each rank starts in"),
            *(config if work.scripted else []),
            ("checkpoints/", "checkpoints, unless SAVE_DIR says otherwise"),
        ],
    )
