"""Owns the megatron-lm recipe: Megatron-Core GPT pretraining with interleaving, context and expert parallelism."""

from __future__ import annotations

from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.models import catalogue
from gpt_tune.profiles.schema import Profile
from gpt_tune.recipes import (
    megatron_deepspeed,
    megatron_lm_model,
    megatron_numbers,
    megatron_readme,
    preflight,
    script,
)
from gpt_tune.recipes.base import JobSpec, Rendered, RenderedFile
from gpt_tune.recipes.megatron_deepspeed import THREADS, Run
from gpt_tune.recipes.megatron_numbers import SYNTHETIC

_FOLDER = "megatron-lm"
_NAME = "Megatron-LM"
# What Megatron-DeepSpeed's folder has and this one has not.
_NOT_HERE = ("ds_config.json", "make_data.py", "repaired.py")


class MegatronLmRecipe:
    """GPT, Llama and mixture-of-experts pretraining on Megatron-Core."""

    name = "megatron-lm"
    title = "Megatron-LM: GPT, Llama or mixture-of-experts pretraining on Megatron-Core"
    planned = True

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices this trainer cannot run."""
        found = megatron_numbers.problems(profile.training)
        try:
            found += megatron_lm_model.problems(catalogue.get(profile.model.id))
        except UserError as error:
            found.append(str(error))
        return found

    def render(self, spec: JobSpec) -> Rendered:
        """Files of a training run."""
        run = _resolve(spec)
        megatron_deepspeed.setting_of(run)
        look = preflight.look(spec, save_mib=preflight.checkpoint_mib(spec.model))
        variables = script.variables(spec, (*megatron_deepspeed.layout_variables(run.plan), THREADS))
        headline, settings = _headline(run), _settings(run)
        job = rendering.render(
            f"{_FOLDER}/job.sbatch.j2",
            **script.common_values(spec, megatron_deepspeed.mounts(run), look),
            **_values(run),
            sbatch=script.sbatch_options(
                spec,
                whole_nodes=megatron_deepspeed.whole_nodes(run),
                requeue=run.numbers.save_interval is not None,
            ),
            headline=headline,
            variables=variables,
            settings=settings,
        )
        files = (
            RenderedFile(script.SCRIPT, job, executable=True),
            script.rank_file(),
            *preflight.files(look),
            RenderedFile("plan.json", rendering.json_bytes(run.plan.to_json())),
            RenderedFile("README.md", _readme(run, settings, headline)),
        )
        return Rendered(
            script=script.SCRIPT,
            files=files,
            log_paths=(script.log_pattern(spec),),
            prediction=megatron_deepspeed.prediction(run),
            summary=script.summary(spec, self.name, headline, variables, _warnings(run)),
        )


def _resolve(spec: JobSpec) -> Run:
    problems = [*megatron_numbers.problems(spec.profile.training), *megatron_lm_model.problems(spec.model)]
    if problems:
        raise UserError(problems[0], "Change it in the profile.")
    if spec.plan is None or spec.plan.trainer.name != MegatronLmRecipe.name:
        raise UserError(
            "A megatron-lm job needs a plan for that trainer.",
            "Plan it first: gpt-tune plan --trainer megatron-lm.",
        )
    layout = spec.plan.layout
    if layout.gpus != spec.gpus:
        raise UserError(
            f"The plan is for {layout.gpus} GPUs, the job has {spec.gpus}.", "Plan again for this number."
        )
    return Run(
        spec=spec,
        plan=spec.plan,
        numbers=megatron_numbers.resolve(spec.profile, spec.model, layout),
        node=megatron_deepspeed.node_of(spec),
        softmax=layout.fusions.masked_softmax,
        notes=(),
    )


def _settings(run: Run) -> list[tuple[str, Any, str]]:
    """What may be overridden in the environment: (variable, value, meaning)."""
    x, n = run.layout, run.numbers
    fusions = x.fusions
    return [
        ("TP", x.tensor_parallel, "tensor-parallel GPUs"),
        ("PP", x.pipeline_parallel, "pipeline stages"),
        ("VIRTUAL_PIPELINE", x.virtual_pipeline, "model chunks of a stage that take turns (interleaving)"),
        ("CONTEXT_PARALLEL", x.context_parallel, "GPUs that share a sequence"),
        ("CONTEXT_METHOD", x.context_method or "ring", "ring or ulysses"),
        ("EXPERT_PARALLEL", x.expert_parallel, "GPUs that share the experts of a layer"),
        ("DISTRIBUTED_OPTIMIZER", int(x.zero_stage > 0), "1 splits the optimizer over the data-parallel GPUs"),
        ("MICRO_BATCH_SIZE", x.micro_batch_size, "sequences per forward pass"),
        ("GLOBAL_BATCH_SIZE", x.global_batch_size, "sequences per iteration"),
        ("SEQ_LENGTH", n.seq_length, "tokens in a sequence"),
        ("TRAIN_ITERS", n.iterations, "iterations"),
        ("LR_DECAY_ITERS", n.decay or "$TRAIN_ITERS", "iterations until the learning rate is at its minimum"),
        ("LR_WARMUP_ITERS", n.warmup, "iterations over which the learning rate rises"),
        ("SEQUENCE_PARALLEL", int(x.sequence_parallel), "1 splits norms and dropout over the tensor-parallel GPUs"),
        ("FLASH_ATTENTION", int(x.flash_attention), "1 lets Transformer Engine choose a fused attention"),
        ("RECOMPUTE", x.recompute.granularity, "none, selective or full"),
        ("RECOMPUTE_METHOD", x.recompute.method or "uniform", "uniform or block, with RECOMPUTE=full"),
        ("RECOMPUTE_LAYERS", x.recompute.layers or 1, "uniform: layers of a chunk; block: layers of a stage"),
        ("TRANSFORMER_IMPL", "transformer_engine", "transformer_engine, or local without that package"),
        ("FUSE_SOFTMAX", int(fusions.masked_softmax), "1 uses the fused softmax where attention is not fused"),
        ("FUSE_ACTIVATION", int(fusions.bias_gelu), "1 fuses bias and activation"),
        ("FUSE_BIAS_DROPOUT", int(fusions.bias_dropout), "1 fuses bias, dropout and residual"),
        ("FUSE_GRADIENT_ACCUMULATION", int(fusions.gradient_accumulation), "1 needs an apex extension"),
        ("SAVE_INTERVAL", n.save_interval or 0, "iterations between checkpoints, 0 saves nothing"),
    ]  # fmt: skip


def _values(run: Run) -> dict[str, Any]:
    training, model, trainer = run.spec.profile.training, run.spec.model, run.spec.profile.trainer
    fixed = [
        *megatron_lm_model.flags(model),
        *megatron_lm_model.training_flags(training),
        *megatron_lm_model.precision_flags(run.layout.precision),
        *megatron_lm_model.tokenizer_flags(training, model),
        # Forked loaders cost start-up time and memory; mock data needs none.
        ["--num-workers", "0" if run.numbers.synthetic else "2"],
        ["--distributed-backend", "nccl"],
    ]
    save = training.checkpoint_dir or f"{run.spec.run_dir}/checkpoints"
    return {
        "fixed_flags": fixed,
        "paths": [
            ("MEGATRON_PATH", trainer.path, "the Megatron-LM checkout"),
            ("DATA_PATH", training.data, "prefix of a .bin and .idx file, or synthetic"),
            ("DATA_SPLIT", training.split, "shares of training, validation and test data"),
            ("SAVE_DIR", save, "where checkpoints go"),
            ("LOAD_DIR", training.load, "a checkpoint folder to start from"),
        ],
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "layers": model.layers,
        "experts": model.experts,
        "gated": model.gated_mlp,
        "positions": model.positions,
        "max_positions": run.numbers.max_positions,
        "synthetic": SYNTHETIC,
        "extra_arguments": trainer.extra_arguments,
    }


def _headline(run: Run) -> str:
    x = run.layout
    where = f"{script.plural(run.spec.gpus, 'GPU')} on {script.plural(run.spec.nodes, 'node')}"
    stages = f"PP {x.pipeline_parallel}" + (f" x {x.virtual_pipeline}" if x.virtual_pipeline > 1 else "")
    more = f", CP {x.context_parallel}" if x.context_parallel > 1 else ""
    more += f", EP {x.expert_parallel}" if x.expert_parallel > 1 else ""
    return (
        f"{_NAME}: {rendering.slug(run.spec.model.id, 'model')} on {where}, TP {x.tensor_parallel}, {stages}{more}, "
        f"DP {x.data_parallel}, {script.plural(run.numbers.iterations, 'iteration')}."
    )


def _warnings(run: Run) -> list[str]:
    if run.spec.profile.trainer.path:
        return []
    return [f"trainer.path is empty: the job looks for {_NAME} in MEGATRON_PATH and stops without it."]


def _readme(run: Run, settings: list[tuple[str, Any, str]], headline: str) -> bytes:
    return megatron_readme.readme(
        run.spec, run.plan, run.numbers, run.notes, settings, headline, left_out=_NOT_HERE
    )
