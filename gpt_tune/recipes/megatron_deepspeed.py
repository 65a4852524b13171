"""Owns the megatron-deepspeed recipe: a plan and a profile become every flag, file and check of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.hardware.catalogue import get_gpu, node_for
from gpt_tune.hardware.parts import Node
from gpt_tune.layouts import legality
from gpt_tune.layouts.layout import Layout
from gpt_tune.layouts.rule import Setting
from gpt_tune.layouts.trainers import pipeline_engine
from gpt_tune.models import catalogue
from gpt_tune.models.flops import model_flops
from gpt_tune.planner.types import Plan
from gpt_tune.profiles.schema import Profile
from gpt_tune.recipes import (
    deepspeed_config,
    megatron_model,
    megatron_numbers,
    megatron_readme,
    preflight,
    script,
)
from gpt_tune.recipes.base import JobSpec, Prediction, Rendered, RenderedFile
from gpt_tune.recipes.megatron_numbers import SYNTHETIC, RunNumbers
from gpt_tune.recipes.network import Variable

_FOLDER = "megatron-deepspeed"
_WHY = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "The layout needs collectives to start in the order they were issued.",
    "PYTORCH_CUDA_ALLOC_CONF": "Memory is tight: segments that grow leave less of it unusable.",
}
THREADS = Variable(
    "OMP_NUM_THREADS", "1", "Every rank would otherwise start a CPU thread for each core of the node."
)


@dataclass(frozen=True, slots=True)
class Run:
    """A job with what its files are made of."""

    spec: JobSpec
    plan: Plan
    numbers: RunNumbers
    node: Node | None
    softmax: bool
    notes: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        return self.plan.layout


class MegatronDeepSpeedRecipe:
    """GPT and Llama pretraining with tensor, pipeline, data and sequence parallelism and ZeRO."""

    name = "megatron-deepspeed"
    title = "Megatron-DeepSpeed: GPT or Llama pretraining over many GPUs"
    planned = True

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices this trainer cannot run."""
        found = megatron_numbers.problems(profile.training)
        try:
            found += megatron_model.problems(catalogue.get(profile.model.id))
        except UserError as error:
            found.append(str(error))
        return found

    def render(self, spec: JobSpec) -> Rendered:
        """Files of a training run."""
        run = resolve(
            spec, [*megatron_numbers.problems(spec.profile.training), *megatron_model.problems(spec.model)]
        )
        setting = setting_of(run)
        accumulation = deepspeed_config.by_stage(run.layout, setting)
        variables = script.variables(spec, (*layout_variables(run.plan), THREADS))
        headline = _headline(run)
        settings = overrides(run)
        config = deepspeed_config.config(
            run.layout, spec.profile.training, run.plan.trainer, accumulation[run.layout.zero_stage].dtype
        )
        look = preflight.look(spec, save_mib=preflight.checkpoint_mib(spec.model))
        job = rendering.render(
            f"{_FOLDER}/job.sbatch.j2",
            **script.common_values(spec, mounts(run), look),
            **script_values(run),
            sbatch=script.sbatch_options(
                spec, whole_nodes=whole_nodes(run), requeue=run.numbers.save_interval is not None
            ),
            headline=headline,
            variables=variables,
            settings=settings,
            accumulation=accumulation,
        )
        files = (
            RenderedFile(script.SCRIPT, job, executable=True),
            script.rank_file(),
            *preflight.files(look),
            RenderedFile("ds_config.json", rendering.json_bytes(config)),
            RenderedFile("make_data.py", rendering.shipped(f"{_FOLDER}/make_data.py")),
            RenderedFile("repaired.py", rendering.shipped(f"{_FOLDER}/repaired.py")),
            RenderedFile("plan.json", rendering.json_bytes(run.plan.to_json())),
            RenderedFile(
                "README.md",
                megatron_readme.readme(spec, run.plan, run.numbers, run.notes, settings, headline),
            ),
        )
        return Rendered(
            script=script.SCRIPT,
            files=files,
            log_paths=(script.log_pattern(spec),),
            prediction=prediction(run),
            summary=script.summary(spec, self.name, headline, variables, _warnings(run)),
        )


def resolve(spec: JobSpec, problems: list[str]) -> Run:
    if problems:
        raise UserError(problems[0], "Change it in the profile.")
    if spec.plan is None:
        raise UserError("A megatron-deepspeed job needs a plan.", "Plan it first: gpt-tune plan.")
    layout = spec.plan.layout
    if layout.gpus != spec.gpus:
        raise UserError(
            f"The plan is for {layout.gpus} GPUs, the job has {spec.gpus}.", "Plan again for this number."
        )
    if layout.virtual_pipeline > 1 or layout.context_method == "ring":
        raise UserError(
            "The plan interleaves pipeline stages or rings attention, which Megatron-DeepSpeed cannot.",
            "Plan again with trainer=megatron-deepspeed.",
        )
    node = node_of(spec)
    softmax, why = megatron_model.fused_softmax(layout, node.gpu if node else None)
    notes = [f"Fused softmax is off: {why}."] if layout.fusions.masked_softmax and not softmax else []
    return Run(
        spec=spec,
        plan=spec.plan,
        numbers=megatron_numbers.resolve(spec.profile, spec.model, layout),
        node=node,
        softmax=softmax,
        notes=tuple(notes),
    )


def node_of(spec: JobSpec) -> Node | None:
    """The node type that the job runs on, if anything names it."""
    resources = spec.profile.resources
    for name in (resources.node, spec.site.node, resources.gpu):
        if name:
            try:
                return node_for(name, spec.gpus_per_node if name == resources.gpu else None)
            except UserError:
                continue
    return None


def setting_of(run: Run) -> Setting:
    """What legality is judged against. Without a known GPU any will do: only its fp8 units are asked about."""
    node = run.node or node_for("h100")
    setting = Setting(
        model=run.spec.model,
        node=node,
        trainer=run.plan.trainer,
        gpus=run.spec.gpus,
        seq_length=run.numbers.seq_length,
    )
    for found in legality.problems(run.layout, setting):
        raise UserError(found.text, f"Use {found.fix}." if found.fix else "Plan again.")
    return setting


def layout_variables(plan: Plan) -> tuple[Variable, ...]:
    return tuple(
        Variable(name, value, _WHY.get(name, "The plan asks for it."))
        for name, value in plan.environment.items()
    )


def whole_nodes(run: Run) -> bool:
    """Several nodes, or all GPUs of one: nobody else can use the rest of them."""
    spec = run.spec
    return spec.nodes > 1 or (run.node is not None and spec.gpus_per_node >= run.node.gpus_per_node)


def mounts(run: Run) -> list[str]:
    """What the trainer reads and writes outside the run folder; of data, the folder that holds its two files."""
    training = run.spec.profile.training
    data = "" if run.numbers.synthetic else training.data.rpartition("/")[0]
    files = (
        () if run.numbers.synthetic else (training.vocab_file, training.merge_file, training.tokenizer_model)
    )
    return list(dict.fromkeys(p for p in (training.checkpoint_dir, training.load, data, *files) if p))


def overrides(run: Run) -> list[tuple[str, Any, str]]:
    """What may be overridden in the environment: (variable, value, meaning)."""
    x, n = run.layout, run.numbers
    return [
        ("TP", x.tensor_parallel, "tensor-parallel GPUs"),
        ("PP", x.pipeline_parallel, "pipeline stages"),
        ("CONTEXT_PARALLEL", x.context_parallel, "GPUs that share a sequence (Ulysses)"),
        ("ZERO_STAGE", x.zero_stage, "what ZeRO splits: 0 nothing, 1 optimizer, 2 gradients too, 3 weights too"),
        ("MICRO_BATCH_SIZE", x.micro_batch_size, "sequences per forward pass"),
        ("GLOBAL_BATCH_SIZE", x.global_batch_size, "sequences per iteration"),
        ("SEQ_LENGTH", n.seq_length, "tokens in a sequence"),
        ("TRAIN_ITERS", n.iterations, "iterations"),
        ("LR_DECAY_ITERS", n.decay or "$TRAIN_ITERS", "iterations until the learning rate is at its minimum"),
        ("LR_WARMUP_ITERS", n.warmup, "iterations over which the learning rate rises"),
        ("SEQUENCE_PARALLEL", int(x.sequence_parallel), "1 splits norms and dropout over the tensor-parallel GPUs"),
        ("FLASH_ATTENTION", int(x.flash_attention), "1 uses flash-attn 2"),
        ("RECOMPUTE", x.recompute.granularity, "none, selective or full"),
        ("RECOMPUTE_LAYERS", x.recompute.layers or 1, "layers per checkpoint with RECOMPUTE=full"),
        ("FUSE_SOFTMAX", int(run.softmax), "1 builds and uses the fused softmax"),
        ("FUSE_BIAS_GELU", int(x.fusions.bias_gelu), "1 fuses bias and GELU"),
        ("FUSE_BIAS_DROPOUT", int(x.fusions.bias_dropout), "1 fuses bias, dropout and residual"),
        ("FUSE_GRADIENT_ACCUMULATION", int(x.fusions.gradient_accumulation), "1 needs an apex extension"),
        ("SAVE_INTERVAL", n.save_interval or 0, "iterations between checkpoints, 0 saves nothing"),
    ]  # fmt: skip


def script_values(run: Run) -> dict[str, Any]:
    training, model, trainer = run.spec.profile.training, run.spec.model, run.spec.profile.trainer
    own_rows = training.tokenizer == "huggingface" and not run.numbers.synthetic
    fixed = [
        *megatron_model.flags(model),
        *megatron_numbers.training_flags(training),
        *megatron_numbers.precision_flags(run.layout.precision),
        *megatron_numbers.tokenizer_flags(training, model),
        ["--data-impl", "mmap"],
        # Forked loaders cost start-up time and memory; random tokens need none.
        ["--num-workers", "0" if run.numbers.synthetic else "2"],
        ["--distributed-backend", "nccl"],
    ]
    return {
        "fixed_flags": fixed,
        "paths": [
            ("MEGATRON_PATH", trainer.path, "the Megatron-DeepSpeed checkout"),
            ("DATA_PATH", training.data, "prefix of a .bin and .idx file, or synthetic"),
            ("DATA_SPLIT", training.split, "shares of training, validation and test data"),
            (
                "SAVE_DIR",
                training.checkpoint_dir or f"{run.spec.run_dir}/checkpoints",
                "where checkpoints go",
            ),
            ("LOAD_DIR", training.load, "a checkpoint folder to start from"),
        ],
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "layers": model.layers,
        "vocab": model.vocab,
        "positions": model.positions,
        "max_positions": run.numbers.max_positions,
        "no_engine": not pipeline_engine(run.layout, run.plan.trainer) and run.layout.zero_stage < 2,
        "block": run.layout.recompute.method == "block",
        "repair_when": megatron_model.repair_when(model, own_rows),
        "repairs": megatron_model.repairs(model, own_rows),
        "synthetic": SYNTHETIC,
        "extra_arguments": trainer.extra_arguments,
    }


def _headline(run: Run) -> str:
    x = run.layout
    where = f"{script.plural(run.spec.gpus, 'GPU')} on {script.plural(run.spec.nodes, 'node')}"
    return (
        f"Megatron-DeepSpeed: {rendering.slug(run.spec.model.id, 'model')} on {where}, TP {x.tensor_parallel}, "
        f"PP {x.pipeline_parallel}, DP {x.data_parallel}, ZeRO {x.zero_stage}, "
        f"{script.plural(run.numbers.iterations, 'iteration')}."
    )


def prediction(run: Run) -> Prediction:
    step, memory, n = run.plan.step, run.plan.memory, run.numbers
    tokens = run.layout.global_batch_size * n.seq_length
    return Prediction(
        step_seconds=step.seconds,
        step_low=step.low,
        step_high=step.high,
        model_tflops=step.model_tflops,
        memory_gib=memory.device_gib,
        memory_limit_gib=memory.limit_gib,
        model_flops_per_step=model_flops(run.spec.model, n.seq_length, tokens),
        tokens_per_step=tokens,
        total_steps=n.iterations,
        peak_tflops=run.node.gpu.bf16_tflops if run.node else _peak(run.spec),
        source="gpt-tune's planner",
    )


def _peak(spec: JobSpec) -> float | None:
    try:
        return get_gpu(spec.profile.resources.gpu).bf16_tflops if spec.profile.resources.gpu else None
    except UserError:
        return None


def _warnings(run: Run) -> list[str]:
    warnings = list(run.notes)
    if not run.spec.profile.trainer.path:
        warnings.append(
            "trainer.path is empty: the job looks for Megatron-DeepSpeed in MEGATRON_PATH and stops without it."
        )
    return warnings
