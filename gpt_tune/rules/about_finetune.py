"""Owns best practices about fine-tuning: strategy, checkpointing, evaluation, and what was never measured."""

from __future__ import annotations

from gpt_tune.memory.finetune import EVAL_BATCH, EVALUATION, LOGIT_FORWARD
from gpt_tune.rules.practice import Practice, Situation

_RUNS = "gpt-tune's own runs on one H200 (tests/data/memory/finetune_h200.json)"


def _tunes(s: Situation) -> bool:
    return s.setting.features.finetune is not None


def _four_bit(s: Situation) -> bool:
    return s.setting.features.finetune == "qlora"


def _strategy_words(s: Situation) -> str:
    x = s.layout
    if x.zero_stage == 0:
        text = "DDP: each GPU holds all weights and only gradients travel, once a step"
    elif x.zero_stage == 2:
        text = f"ZeRO-2: gradients and optimizer are split over {x.data_parallel} GPUs, weights are whole on each"
    else:
        text = (
            f"ZeRO-3: weights too are split over {x.data_parallel} GPUs and gathered in every pass, "
            "which costs most time and least memory"
        )
    if _four_bit(s) and x.zero_stage == 2:
        text += "; DeepSpeed also turns the fp32 tables back to bf16, which saves most"
    return text + "."


def _host_bound(s: Situation) -> bool:
    return _tunes(s) and s.step.other > 0.3 * s.step.seconds


def _evaluates_more(s: Situation) -> bool:
    """Whether evaluation takes larger batches than training: the estimate then says that it leaves them out."""
    return _tunes(s) and any(name.startswith(EVALUATION) for name in s.memory.not_modelled)


def _evaluation_words(s: Situation) -> str:
    vocab, seq = s.setting.model.vocab, s.setting.seq_length
    need = LOGIT_FORWARD * vocab * seq * EVAL_BATCH / 2**30
    return (
        f"Hugging Face evaluates {EVAL_BATCH} examples at once by default, whose logits alone take {need:.0f} GiB: "
        "a run that trains can still run out of memory at its first evaluation."
    )


PRACTICES: tuple[Practice, ...] = (
    Practice(
        "finetune-rough-time",
        "warn",
        _tunes,
        lambda s: (
            "The step time is rough (a factor of 1.6 either way): constants of one H200, sequences of full length."
        ),
        _RUNS,
    ),
    Practice(
        "finetune-strategy",
        "explain",
        lambda s: _tunes(s) and s.layout.data_parallel > 1,
        _strategy_words,
        "DeepSpeed configuration documentation; " + _RUNS,
    ),
    Practice(
        "finetune-host-bound",
        "note",
        _host_bound,
        lambda s: (
            f"{s.step.other / s.step.seconds:.0%} of the step waits for the host: a larger micro batch is nearly free."
        ),
        _RUNS,
        fix="micro_batch_size",
    ),
    Practice(
        "finetune-evaluation",
        "note",
        _evaluates_more,
        _evaluation_words,
        "transformers TrainingArguments per_device_eval_batch_size; " + _RUNS,
        fix="per_device_eval_batch_size no larger than the micro batch",
    ),
    Practice(
        "qlora-zero3",
        "warn",
        lambda s: _four_bit(s) and s.layout.zero_stage == 3,
        lambda s: (
            "4-bit weights under ZeRO-3 train with AdamW in 32 bits (1B on two H200: the losses of DDP), in two to "
            "three times the time of ZeRO-2, and stand whole on each GPU while they load: prefer what fits without. "
            "With an 8-bit optimizer it stopped with a CUDA error."
        ),
        "gpt-tune's own runs on one and two H200 (bitsandbytes 0.50.2, DeepSpeed 0.19.8)",
        fix="zero_stage=2",
    ),
)
