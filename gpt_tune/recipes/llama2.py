"""Owns the llama2-finetune recipe: published Llama weights, converted once, fine-tuned with Megatron-DeepSpeed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.models import catalogue
from gpt_tune.models.shape import ModelShape
from gpt_tune.profiles.schema import Profile, Training
from gpt_tune.recipes import (
    deepspeed_config,
    megatron_model,
    megatron_numbers,
    megatron_readme,
    preflight,
    script,
)
from gpt_tune.recipes import megatron_deepspeed as pretraining
from gpt_tune.recipes.base import JobSpec, Rendered, RenderedFile

_FOLDER = "llama2-finetune"
_TRAINER = ("prepare.py", "convert.py", "weights.py", "attention.py")


class Llama2FinetuneRecipe:
    """Llama 1, 2 and 3: Hugging Face weights to Megatron-DeepSpeed, then supervised fine-tuning that saves."""

    name = "llama2-finetune"
    title = "Llama fine-tuning: convert Hugging Face weights, train all of them with Megatron-DeepSpeed"
    planned = True
    trainer = "megatron-deepspeed"
    # The converter writes the pipeline engine's checkpoints, and the trainer masks questions only with it.
    required: dict[str, Any] = {"context_parallel": 1, "trainer.pipeline_engine": True}  # noqa: RUF012

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices that cannot be converted or trained."""
        found = _input_problems(profile)
        found += megatron_numbers.problems(_training(profile, "/run"))
        try:
            found += _model_problems(catalogue.get(profile.model.id))
        except UserError as error:
            found.append(str(error))
        return found

    def render(self, spec: JobSpec) -> Rendered:
        """Files of a fine-tuning run."""
        problems = [*_input_problems(spec.profile), *_model_problems(spec.model)]
        training = _training(spec.profile, spec.run_dir)
        inner = replace(spec, profile=replace(spec.profile, training=training))
        run = pretraining.resolve(inner, problems + megatron_numbers.problems(training))
        _check_layout(run)
        accumulation = deepspeed_config.by_stage(run.layout, pretraining.setting_of(run))
        variables = script.variables(spec, (*pretraining.layout_variables(run.plan), pretraining.THREADS))
        headline, settings = _headline(run), pretraining.overrides(run)
        config = deepspeed_config.config(
            run.layout, training, run.plan.trainer, accumulation[run.layout.zero_stage].dtype
        )
        look = preflight.look(spec, save_mib=preflight.checkpoint_mib(spec.model))
        job = rendering.render(
            f"{_FOLDER}/job.sbatch.j2",
            **script.common_values(spec, _mounts(spec), look),
            **_values(run),
            sbatch=script.sbatch_options(spec, whole_nodes=pretraining.whole_nodes(run), requeue=True),
            headline=headline,
            variables=variables,
            settings=settings,
            accumulation=accumulation,
            converter=spec.profile.finetune.converter,
            export=spec.profile.finetune.export,
        )
        files = (
            RenderedFile(script.SCRIPT, job, executable=True),
            script.rank_file(),
            *preflight.files(look),
            RenderedFile("ds_config.json", rendering.json_bytes(config)),
            RenderedFile("llama2.json", rendering.json_bytes(_settings(spec))),
            RenderedFile("repaired.py", rendering.shipped("megatron-deepspeed/repaired.py")),
            RenderedFile("trainer/examples.py", rendering.shipped("qlora/trainer/examples.py")),
            *(RenderedFile(f"trainer/{n}", rendering.shipped(f"{_FOLDER}/trainer/{n}")) for n in _TRAINER),
            RenderedFile("plan.json", rendering.json_bytes(run.plan.to_json())),
            RenderedFile("README.md", _readme(run, headline)),
        )
        return Rendered(
            script=script.SCRIPT,
            files=files,
            log_paths=(script.log_pattern(spec),),
            prediction=pretraining.prediction(run),
            summary=script.summary(spec, self.name, headline, variables, _warnings(run)),
        )


def _training(profile: Profile, run_dir: str) -> Training:
    """The training choices with what this recipe settles: prepared data, the weights' tokenizer, no dropout."""
    return replace(
        profile.training,
        data=profile.finetune.data or "finetune.data",
        tokenizer="huggingface",
        tokenizer_model=f"{run_dir}/prepared/tokenizer",
        split="100,0,0",
        dropout=0.0,
        eval_iterations=0,  # the trainer has no validation data in fine-tuning
    )


def _input_problems(profile: Profile) -> list[str]:
    tune = profile.finetune
    found = []
    if not tune.weights.startswith("/"):
        given = f"is {tune.weights!r}" if tune.weights else "is empty"
        found.append(f"finetune.weights {given}; give the absolute path of a folder of Hugging Face weights.")
    if not tune.data.strip():
        found.append("finetune.data is empty: give a JSON, JSONL or parquet file, or a data set's name.")
    for name, text in (
        ("weights", tune.weights),
        ("data", tune.data),
    ):
        if "\n" in text or "\r" in text:
            found.append(f"finetune.{name} holds a line break.")
    if tune.messages_field:
        found.append("finetune.messages_field is set; this trainer learns single questions and answers.")
    if tune.max_samples is not None and tune.max_samples < 1:
        found.append(f"finetune.max_samples is {tune.max_samples}; it must be at least 1.")
    if profile.training.load:
        found.append(
            "training.load is set; a fine-tuning run starts from finetune.weights and continues by itself."
        )
    return found


def _model_problems(model: ModelShape) -> list[str]:
    found = list(megatron_model.problems(model))
    alike = (
        model.norm == "rmsnorm" and model.gated_mlp and model.positions == "rotary" and not model.linear_bias
    )
    if not alike or model.tied_embeddings:
        found.append(
            f"{model.id} is not built like Llama 2 (RMSNorm, SwiGLU, rotary positions, no biases, untied embeddings), "
            "which is all that the converter knows."
        )
    return found


def _check_layout(run: pretraining.Run) -> None:
    x = run.layout
    if x.zero_stage >= 2 or x.context_parallel > 1 or x.precision == "fp8":
        raise UserError(
            f"The plan has ZeRO {x.zero_stage}, context parallel {x.context_parallel} and {x.precision}; converted "
            "weights need the pipeline engine.",
            "Plan again with zero_stage 0 or 1, context_parallel 1 and bf16.",
        )


def _settings(spec: JobSpec) -> dict[str, Any]:
    tune, model = spec.profile.finetune, spec.model
    names = ("prompt_field", "input_field", "reasoning_field", "answer_field", "data_config", "data_split")
    return {
        "model": {
            "num_hidden_layers": model.layers,
            "hidden_size": model.hidden,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "intermediate_size": model.ffn,
            "vocab_size": model.vocab,
        },
        "rope": {"theta": model.rope_theta, "scaling": model.rope_scaling},
        "max_samples": tune.max_samples or 0,
        **{name: getattr(tune, name) for name in names},
    }


def _values(run: pretraining.Run) -> dict[str, Any]:
    spec = run.spec
    values = pretraining.script_values(run)
    paths = [p for p in values["paths"] if p[0] != "LOAD_DIR"]
    paths += [
        ("WEIGHTS", spec.profile.finetune.weights, "folder of Hugging Face weights"),
        ("CONVERTED_DIR", f"{spec.run_dir}/converted", "where converted weights go; runs may share it"),
        ("EXPORT_DIR", f"{spec.run_dir}/export", "where Hugging Face weights go after training"),
    ]
    model = spec.model
    own_angles = model.rope_theta != megatron_model.TRAINERS_THETA or model.rope_scaling
    needs_2025 = (
        f"{model.id} turns positions with base {model.rope_theta:g}, and this checkout of 2024 has no option for it; "
        "use Megatron-DeepSpeed since December 2024."
    )
    return {**values, "paths": paths, "repair_when": "1", "needs_2025": needs_2025 if own_angles else ""}


def _mounts(spec: JobSpec) -> list[str]:
    tune, training = spec.profile.finetune, spec.profile.training
    return [p for p in (tune.weights, tune.data, training.checkpoint_dir) if p.startswith("/")]


def _headline(run: pretraining.Run) -> str:
    x = run.layout
    return (
        f"Llama fine-tuning: {rendering.slug(run.spec.model.id, 'model')} on {script.plural(run.spec.gpus, 'GPU')} of "
        f"{script.plural(run.spec.nodes, 'node')}, TP {x.tensor_parallel}, PP {x.pipeline_parallel}, "
        f"DP {x.data_parallel}, ZeRO {x.zero_stage}, {script.plural(run.numbers.iterations, 'iteration')}."
    )


def _warnings(run: pretraining.Run) -> list[str]:
    found = list(run.notes)
    if not run.spec.profile.trainer.path:
        found.append(
            "trainer.path is empty: the job looks for Megatron-DeepSpeed in MEGATRON_PATH and stops without it."
        )
    return found


def _readme(run: pretraining.Run, headline: str) -> bytes:
    extra = [
        ("WEIGHTS", run.spec.profile.finetune.weights, "folder of Hugging Face weights"),
        ("CONVERTED_DIR", "converted", "where converted weights go; runs may share it"),
    ]
    files = [
        ("trainer/", "checks, data preparation and conversion"),
        ("llama2.json", "the model's shape and the data's fields"),
        ("converted/", "the weights as Megatron-DeepSpeed has them, by TP and PP"),
    ]
    return megatron_readme.readme(
        run.spec, run.plan, run.numbers, run.notes, [*pretraining.overrides(run), *extra], headline,
        template=f"{_FOLDER}/README.md.j2", more_files=files, left_out=("make_data.py",),
    )  # fmt: skip
