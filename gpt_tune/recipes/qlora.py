"""Owns the qlora recipe: adapters on 4-bit weights, with the trainer, settings and checks of one run."""

from __future__ import annotations

from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Profile
from gpt_tune.recipes import preflight, qlora_choices, qlora_layout, script
from gpt_tune.recipes.base import JobSpec, Prediction, Rendered, RenderedFile
from gpt_tune.recipes.network import Variable
from gpt_tune.recipes.qlora_choices import Chosen
from gpt_tune.recipes.qlora_layout import seq_length
from gpt_tune.words import seconds_words

_TRAINER = (
    "finetune.py", "settings.py", "examples.py", "checkpoints.py", "machine.py", "modelling.py", "reporting.py",
)  # fmt: skip
_VARIABLES = (
    Variable(
        "OMP_NUM_THREADS", "1", "Every rank would otherwise start a CPU thread for each core of the node."
    ),
    Variable(
        "PYTORCH_CUDA_ALLOC_CONF",
        "expandable_segments:True",
        "Examples differ in length: segments that grow leave fewer holes between them.",
    ),
    Variable("TOKENIZERS_PARALLELISM", "false", "Threads of the tokenizer and forked loaders can block each other."),
)  # fmt: skip
# Elements; the ZeRO configurations of the AWS QLoRA test case.
_BUCKET = 200_000_000
_PERSISTENT = 1_000_000
_LESS = "use a smaller finetune.micro_batch_size or model.seq_length, or more GPUs with zero3."
_WHOLE = "a 4-bit model loads whole on each. Use finetune.base_weights 16bit with zero3 on more GPUs."
_ROUGH = (
    "step times are rough, a factor of 1.6 either way, for examples of full length; shorter ones take less"
)
# Adapters of rank 64 on a 70B model take 2 GB with their optimizer's state; several are kept.
_CHECKPOINT_MIB = 4096


class QloraRecipe:
    """LoRA or QLoRA fine-tuning on Hugging Face's libraries."""

    name = "qlora"
    title = "QLoRA: fine-tune published weights in 4 bits, on one GPU or many"
    planned = True
    # Where nothing tells the GPU or the weights' shape, it runs by the profile's numbers.
    plan_optional = True

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices that cannot be trained with."""
        return qlora_choices.problems(profile)

    def render(self, spec: JobSpec) -> Rendered:
        """Files of a fine-tuning run."""
        problems = self.problems(spec.profile)
        if problems:
            raise UserError(problems[0], "Change it in the profile.")
        chosen = qlora_choices.choose(spec)
        variables = script.variables(spec, _VARIABLES if spec.gpus else _VARIABLES[::2])
        headline, settings = _headline(spec, chosen), _settings(spec, chosen)
        look = preflight.look(spec, save_mib=_CHECKPOINT_MIB)
        job = rendering.render(
            "qlora/job.sbatch.j2",
            **script.common_values(spec, _mounts(spec), look),
            sbatch=script.sbatch_options(spec, whole_nodes=_whole_nodes(spec), requeue=True),
            headline=headline,
            variables=variables,
            settings=settings,
            paths=_paths(spec),
            cpu=spec.gpus == 0,
        )
        trainer = (RenderedFile(f"trainer/{n}", rendering.shipped(f"qlora/trainer/{n}")) for n in _TRAINER)
        files = (
            RenderedFile(script.SCRIPT, job, executable=True),
            script.rank_file(),
            *preflight.files(look),
            *trainer,
            RenderedFile("finetune.json", rendering.json_bytes(trainer_settings(spec, chosen))),
            RenderedFile("ds_zero2.json", rendering.json_bytes(deepspeed(2))),
            RenderedFile("ds_zero3.json", rendering.json_bytes(deepspeed(3))),
            *([RenderedFile("plan.json", rendering.json_bytes(spec.plan.to_json()))] if spec.plan else []),
            RenderedFile("README.md", _readme(spec, chosen, headline, settings)),
        )
        return Rendered(
            script=script.SCRIPT,
            files=files,
            log_paths=(script.log_pattern(spec),),
            prediction=_prediction(spec, chosen),
            summary=script.summary(spec, self.name, headline, variables, _warnings(spec, chosen)),
        )


def trainer_settings(spec: JobSpec, chosen: Chosen) -> dict[str, Any]:
    """What the trainer reads: every hyperparameter, and the names of the data's fields."""
    tune = spec.profile.finetune
    same = (
        "base_weights", "double_quantisation", "lora_rank", "lora_alpha", "lora_dropout", "epochs", "learning_rate",
        "lr_decay_style", "warmup_share", "weight_decay", "gradient_clipping", "optimizer", "group_by_length",
        "log_interval", "checkpoint_interval", "checkpoints_kept", "eval_interval", "patience", "seed", "data_config",
        "data_split", "prompt_field", "input_field", "reasoning_field", "answer_field", "messages_field",
        "system_prompt", "validation_share",
    )  # fmt: skip
    return {
        "weights": tune.weights,
        "data": tune.data,
        "output": _output(spec),
        "strategy": chosen.strategy,
        "micro_batch_size": chosen.micro_batch_size,
        "gradient_accumulation_steps": chosen.gradient_accumulation_steps,
        "gradient_checkpointing": chosen.gradient_checkpointing,
        "max_length": seq_length(spec.profile),
        "steps": tune.steps or 0,
        "max_samples": tune.max_samples or 0,
        "lora_targets": list(tune.lora_targets),
        **{name: getattr(tune, name) for name in same},
    }


def deepspeed(stage: int) -> dict[str, Any]:
    """DeepSpeed's configuration; transformers fills in what says "auto" from the trainer's own numbers."""
    zero: dict[str, Any] = {
        "stage": stage,
        "offload_optimizer": {"device": "none"},
        "allgather_partitions": True,
        "allgather_bucket_size": _BUCKET,
        "reduce_scatter": True,
        "reduce_bucket_size": _BUCKET,
        "overlap_comm": False,
        "contiguous_gradients": True,
        "round_robin_gradients": True,
    }
    if stage == 3:
        zero |= {
            "offload_param": {"device": "none"},
            "stage3_prefetch_bucket_size": _BUCKET,
            "stage3_param_persistence_threshold": _PERSISTENT,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
        # The 8-bit optimizers are bitsandbytes', which DeepSpeed has no tests for.
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
    }


def _output(spec: JobSpec) -> str:
    return spec.profile.training.checkpoint_dir or f"{spec.run_dir}/checkpoints"


def _paths(spec: JobSpec) -> list[tuple[str, str, str]]:
    return [
        ("WEIGHTS", spec.profile.finetune.weights, "a folder of weights, or a repository's name"),
        ("DATA", spec.profile.finetune.data, "a file, or a data set's name"),
        ("SAVE_DIR", _output(spec), "where checkpoints go"),
    ]


def _settings(spec: JobSpec, chosen: Chosen) -> list[tuple[str, Any, str]]:
    """What may be overridden in the environment: (variable, value, meaning)."""
    tune = spec.profile.finetune
    return [
        ("STRATEGY", chosen.strategy, "ddp (a whole copy a GPU), zero2 or zero3 (split over the GPUs)"),
        ("BASE_WEIGHTS", tune.base_weights, "nf4, fp4 or 16bit"),
        ("MAX_LENGTH", seq_length(spec.profile), "tokens an example is cut at"),
        ("MICRO_BATCH_SIZE", chosen.micro_batch_size, "examples a GPU computes at once"),
        ("ACCUMULATION_STEPS", chosen.gradient_accumulation_steps, "micro batches of an optimizer step"),
        ("EPOCHS", repr(float(tune.epochs)), "passes over the data"),
        ("MAX_STEPS", tune.steps or 0, "optimizer steps instead; 0 goes by EPOCHS"),
        ("LEARNING_RATE", repr(float(tune.learning_rate)), "the highest learning rate"),
        ("LORA_RANK", tune.lora_rank, "rank of the adapters"),
        ("LORA_ALPHA", tune.lora_alpha, "their scale"),
        ("LOG_INTERVAL", tune.log_interval, "steps between log lines"),
        ("SAVE_INTERVAL", tune.checkpoint_interval, "steps between checkpoints"),
        ("EVAL_INTERVAL", tune.eval_interval, "steps between evaluations"),
        ("MAX_SAMPLES", tune.max_samples or 0, "records to use; 0 uses all"),
    ]


def _mounts(spec: JobSpec) -> list[str]:
    return [value for _, value, _ in _paths(spec) if value.startswith("/")]


def _whole_nodes(spec: JobSpec) -> bool:
    node = qlora_choices.node_of(spec)
    return spec.nodes > 1 or (node is not None and spec.gpus_per_node >= node.gpus_per_node)


def _headline(spec: JobSpec, chosen: Chosen) -> str:
    tune = spec.profile.finetune
    where = script.plural(spec.gpus, "GPU") if spec.gpus else script.plural(script.ranks(spec), "CPU process")
    kind = "LoRA" if tune.base_weights == "16bit" else "QLoRA"
    return (
        f"{kind}: {rendering.slug(tune.weights, 'weights')} on {where} of {script.plural(spec.nodes, 'node')}, "
        f"{tune.base_weights} base weights, rank {tune.lora_rank}, {chosen.strategy}, micro batch "
        f"{chosen.micro_batch_size} x {chosen.gradient_accumulation_steps}."
    )


def _prediction(spec: JobSpec, chosen: Chosen) -> Prediction:
    node = qlora_choices.node_of(spec)
    memory, step = chosen.memory, spec.plan.step if spec.plan else None
    ranks = script.ranks(spec)
    batch = chosen.micro_batch_size * chosen.gradient_accumulation_steps * ranks
    untimed = (
        "gpt-tune's memory model of fine-tuning; no time is predicted, because its GPU or model is not known"
    )
    # No speed: examples are shorter than the length they are cut at, and frozen weights have no gradients.
    return Prediction(
        step_seconds=step.seconds if step else None,
        step_low=step.low if step else None,
        step_high=step.high if step else None,
        memory_gib=memory.device_gib if memory else None,
        memory_limit_gib=memory.limit_gib if memory else None,
        total_steps=qlora_layout.steps_of(spec.profile, batch),
        peak_tflops=node.gpu.bf16_tflops if node else None,
        source=f"gpt-tune's planner: {_ROUGH}" if step else untimed,
    )


def _warnings(spec: JobSpec, chosen: Chosen) -> list[str]:
    found = qlora_choices.size_warnings(spec.profile.finetune.weights, spec.model)
    if spec.gpus == 0:
        found.append("The job has no GPU: it trains on the CPU, which is for trying it on a tiny model only.")
    if chosen.strategy == "zero3" and spec.profile.finetune.base_weights != "16bit":
        found.append(
            "ZeRO-3 with 4-bit weights took two to three times as long as zero2 on two H200s: it is for models that "
            "fit no other way."
        )
    memory = chosen.memory
    if memory and memory.limit_gib and (memory.oom_probability or 0) > 0.5:
        found.append(
            f"{chosen.strategy} is expected to take {memory.device_gib:.0f} GiB of {memory.limit_gib:.0f} GiB a GPU: "
            + (_WHOLE if memory.peak_phase == "initialisation" else _LESS)
        )
    return found


def _readme(spec: JobSpec, chosen: Chosen, headline: str, settings: list[tuple[str, Any, str]]) -> bytes:
    tune, memory = spec.profile.finetune, chosen.memory
    facts = [
        ("profile", spec.profile.name or "(unnamed)"),
        ("weights", tune.weights),
        ("data", " ".join(p for p in (tune.data, tune.data_config, tune.data_split) if p)),
        ("where", script.where_words(spec)),
        ("strategy", f"{chosen.strategy}: {chosen.why}"),
    ]
    if memory:
        limit = f" of {memory.limit_gib:.0f}" if memory.limit_gib else ""
        between = f"{memory.low_gib:.0f} to {memory.high_gib:.0f} at 90 %"
        facts.append(("expected memory per GPU", f"{memory.device_gib:.0f}{limit} GiB ({between})"))
    if spec.plan:
        step = spec.plan.step
        ends = f"{seconds_words(step.low)} to {seconds_words(step.high)}"
        facts.append(("expected step", f"{seconds_words(step.seconds)} ({ends}): {_ROUGH}"))
    return rendering.render(
        "qlora/README.md.j2",
        name=spec.profile.name or "QLoRA run",
        headline=headline,
        run_id=spec.run_id,
        facts=facts,
        overrides=[*settings, ("RESUME", "auto", "auto, none, weights or a checkpoint's folder")],
        rechecked="The script checks the numbers before it launches anything.",
        length=seq_length(spec.profile),
        files=[
            ("job.sbatch", "the job"),
            ("rank.sh", "what each rank starts in"),
            ("trainer/", "the training program"),
            ("finetune.json", "its settings; job.sbatch's numbers win over them"),
            *([("plan.json", "the plan")] if spec.plan else []),
            ("ds_zero2.json, ds_zero3.json", "DeepSpeed's configuration for STRATEGY=zero2 and zero3"),
            ("checkpoints/", "checkpoints, and final/ with the finished adapter"),
        ],
    )
