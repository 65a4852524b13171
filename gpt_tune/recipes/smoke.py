"""Owns the smoke recipe: a small real training that checks the whole path before GPU-hours are spent."""

from __future__ import annotations

import sys

from gpt_tune import rendering
from gpt_tune.errors import UserError
from gpt_tune.profiles.schema import Profile, Smoke
from gpt_tune.recipes import preflight, script, smoke_prediction
from gpt_tune.recipes.base import JobSpec, Prediction, Rendered, RenderedFile

_TRAINER_FILES = (
    "train.py", "options.py", "meeting.py", "loop.py", "lines.py", "checkpoints.py", "numpy_gpt.py",
    "torch_gpt.py", "corpus.txt",
)  # fmt: skip
_LONGEST_SECONDS = 24 * 3600


class SmokeRecipe:
    """A GPT in NumPy on any machine; in PyTorch where there are GPUs."""

    name = "smoke"
    title = "Smoke test: a small real training, one minute, any machine"
    planned = False

    def problems(self, profile: Profile) -> list[str]:
        """Sentences about choices the smoke trainer cannot run."""
        s = profile.smoke
        found = [
            f"smoke.{name} is {value}; it must be at least 1."
            for name, value in (
                ("layers", s.layers), ("hidden", s.hidden), ("heads", s.heads),
                ("seq_length", s.seq_length), ("micro_batch_size", s.micro_batch_size), ("seconds", s.seconds),
            )
            if value < 1
        ]  # fmt: skip
        if s.steps is not None and s.steps < 1:
            found.append(f"smoke.steps is {s.steps}; it must be at least 1.")
        if s.heads > 0 and s.hidden % s.heads:
            nearest = max(1, round(s.hidden / s.heads)) * s.heads
            found.append(
                f"smoke.hidden {s.hidden} is not a multiple of smoke.heads {s.heads}; {nearest} would be."
            )
        if s.seconds > _LONGEST_SECONDS:
            found.append(f"smoke.seconds is {s.seconds}; at most {_LONGEST_SECONDS} (a day).")
        return found

    def render(self, spec: JobSpec) -> Rendered:
        """Files of a smoke run."""
        problems = self.problems(spec.profile)
        if problems:
            raise UserError(problems[0], "Change it in the profile.")
        smoke = spec.profile.smoke
        prediction = smoke_prediction.predict(smoke, spec.scheduler)
        variables = script.variables(spec)
        headline = _headline(spec, smoke)
        look = preflight.look(spec, automatic=False)
        job = rendering.render(
            "smoke/job.sbatch.j2",
            **script.common_values(spec, look=look),
            sbatch=script.sbatch_options(spec, whole_nodes=False, requeue=True),
            headline=headline,
            variables=variables,
            smoke=smoke,
            own_python=sys.executable,
        )
        files = (
            RenderedFile(script.SCRIPT, job, executable=True),
            script.rank_file(),
            *preflight.files(look),
            *(RenderedFile(f"trainer/{n}", rendering.shipped(f"smoke/trainer/{n}")) for n in _TRAINER_FILES),
            RenderedFile("README.md", _readme(spec, smoke, headline, prediction)),
        )
        return Rendered(
            script=script.SCRIPT,
            files=files,
            log_paths=(script.log_pattern(spec),),
            prediction=prediction,
            summary=script.summary(spec, self.name, headline, variables, ()),
        )


def _headline(spec: JobSpec, smoke: Smoke) -> str:
    length = f"{smoke.steps} iterations" if smoke.steps else f"about {smoke.seconds} s"
    shape = f"{smoke.layers} layers of {smoke.hidden}, {smoke_prediction.parameters(smoke):,} parameters"
    where = f"{script.plural(script.ranks(spec), 'rank')} on {script.plural(spec.nodes, 'node')}"
    return f"Smoke training: {shape}, {length}, {where}."


def _readme(spec: JobSpec, smoke: Smoke, headline: str, prediction: Prediction) -> bytes:
    facts = [
        ("profile", spec.profile.name or "(unnamed)"),
        ("where", script.where_words(spec)),
    ]
    if prediction.step_seconds and prediction.step_low and prediction.step_high:
        low, middle, high = (
            f"{t * 1e3:.3g}" for t in (prediction.step_low, prediction.step_seconds, prediction.step_high)
        )
        facts.append(("expected step time", f"{middle} ms ({low} to {high}); {prediction.source}"))
    overrides = [
        (
            "SMOKE_SECONDS",
            smoke.seconds,
            "train about this long; the first steps fix the number of iterations",
        ),
        ("TRAIN_ITERS", smoke.steps or 0, "exactly this many iterations; 0 goes by SMOKE_SECONDS"),
        ("NUM_LAYERS", smoke.layers, "layers"),
        ("HIDDEN_SIZE", smoke.hidden, "width, a multiple of NUM_HEADS"),
        ("NUM_HEADS", smoke.heads, "attention heads"),
        ("SEQ_LENGTH", smoke.seq_length, "tokens in a sequence"),
        ("MICRO_BATCH_SIZE", smoke.micro_batch_size, "sequences per training process and iteration"),
        ("PYTHON", "python3", "an interpreter that has NumPy"),
    ]
    return rendering.render(
        "smoke/README.md.j2",
        name=spec.profile.name or "Smoke test",
        headline=headline,
        run_id=spec.run_id,
        facts=facts,
        overrides=overrides,
        rechecked="",
        files=[
            ("job.sbatch", "the job"),
            ("rank.sh", "what each rank starts in"),
            ("trainer/", "the training program and its text"),
            ("checkpoints/", "the last two checkpoints; a new start continues from the newest"),
        ],
    )
