"""QLoRA fine-tuning: adapters on 4-bit base weights, alone or over many GPUs (DDP, ZeRO-2, ZeRO-3).

    finetune.py --settings finetune.json [--strategy ddp] [--resume auto] ...

One process a GPU, told its place by RANK, LOCAL_RANK and WORLD_SIZE. Continues from the newest whole
checkpoint; saves and stops on SIGTERM and SIGUSR1. Where weights are cached and tokens for them come from
the environment (HF_HOME, HF_TOKEN). --cpu and --no-quantize try a run on a machine without a GPU.

Exit codes: 0 done, or saved and left on a signal; 2 settings, data or checkpoint refused; 69 the machine or
its software is not fit; 1 anything else.
"""

import math
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import checkpoints
import examples
import machine
import settings as settings_of

REFUSED, UNFIT = 2, 69  # 69: EX_UNAVAILABLE of sysexits.h
_OPTIMIZERS = {"adamw": "adamw_torch", "adamw_8bit": "adamw_bnb_8bit", "paged_adamw_8bit": "paged_adamw_8bit"}
# bitsandbytes' optimizers stop in their CUDA code (ops.cu) on the flat parts that DeepSpeed hands them. Adapters are
# small and DeepSpeed splits the state over the ranks, so 32-bit AdamW costs little.
UNDER_DEEPSPEED = "adamw"
_SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def main(argv=None):
    """Run this rank; returns its exit code."""
    place = machine.Place()
    try:
        return run(argv, place)
    except (settings_of.SettingsError, examples.DataError, checkpoints.CheckpointError) as error:
        return refuse(place, error, REFUSED)
    except machine.MachineError as error:
        return refuse(place, error, UNFIT)


def refuse(place, error, code):
    """One sentence; every rank finds out by itself, so that one line a rank says who."""
    print(f"rank {place.rank} on {place.host}: {error}", file=sys.stderr, flush=True)
    return code


def run(argv, place):
    """Everything, in order: what is cheap to find wrong comes first."""
    settings, options = settings_of.parse(argv)
    quantized = settings["base_weights"] != "16bit"
    if settings["strategy"] != "ddp" and not options.deepspeed_config:
        raise settings_of.SettingsError(f"strategy {settings['strategy']} needs --deepspeed-config.")
    start, notes = checkpoints.choose(settings["output"], options.resume, settings["strategy"], place.ranks)
    adapter = checkpoints.adapter_in(options.adapter_from) if options.adapter_from and start is None else None
    for note in notes:
        place.say(note)
    local = Path(settings["data"]).exists()
    machine.check_packages(quantized, settings["strategy"], hub=not local)
    if options.cpu:
        device, bf16, words = "cpu", False, "CPU"
    else:
        device, bf16, words = machine.check_gpu(place, quantized)
    print(f"rank {place.rank} of {place.ranks} on {place.host}: {words}", flush=True)
    return train(settings, options, place, (device, bf16), start, adapter)


def train(settings, options, place, fit, start, adapter):
    """Load, train, save."""
    import modelling
    import reporting
    import torch
    from transformers import set_seed

    device, bf16 = fit
    signals = reporting.Signals()
    set_seed(settings["seed"])
    tokenizer = modelling.tokenizer_of(settings["weights"])
    rows, checked = data_of(settings, place, tokenizer)
    total, warmup = steps_of(settings, len(rows), place.ranks)
    place.say(f"{len(rows):,} training and {len(checked):,} validation examples, {total:,} steps")
    if options.check:
        place.say("checked: settings, data and machine are fit")
        return 0
    # Before the model: with ZeRO-3 transformers splits it over the ranks while it loads.
    arguments = arguments_of(settings, options, device, bf16, total, warmup, bool(checked), place)
    if settings["strategy"] != "ddp":
        import deepspeed

        # Does nothing where transformers did it. ZeRO-3 counts the ranks while the model loads.
        deepspeed.init_distributed(dist_backend="gloo" if device == "cpu" else "nccl")
    half = torch.float32 if device == "cpu" else (torch.bfloat16 if bf16 else torch.float16)
    began = time.monotonic()
    model = modelling.load(settings, place, device, half, adapter)
    trained, everything = modelling.counted(model)
    place.say(
        f"model loaded in {time.monotonic() - began:.1f} s: {trained:,} of {everything:,} parameters are trained, "
        f"base weights {settings['base_weights']}, strategy {settings['strategy']}"
    )
    trainer, stopping = trainer_of(
        model, arguments, tokenizer, rows, checked, settings, signals, place, device
    )
    if start is not None:
        place.say(f"continuing from {start}")
    elif adapter is not None:
        place.say(f"starting from the adapter of {adapter}, with a new optimizer")
    trainer.train(resume_from_checkpoint=None if start is None else str(start))
    return finish(trainer, tokenizer, settings, place, stopping)


def finish(trainer, tokenizer, settings, place, stopping):
    """Save the adapter, unless a signal cut training short; say which it was."""
    step = trainer.state.global_step
    if stopping.stopped:
        place.say(f"stopped at step {step} of {trainer.state.max_steps}; a new start continues from there")
        return 0
    final = f"{settings['output']}/final"
    trainer.save_model(final)
    if place.leads:
        tokenizer.save_pretrained(final)
        print(f"Training completed. Adapter in {final} after {step} steps", flush=True)
    return 0


def data_of(settings, place, tokenizer):
    """Training and validation rows."""
    records = list(records_of(settings))
    if settings.get("max_samples"):
        records = records[: settings["max_samples"]]
    encoded, fields = examples.encode(
        records, settings, tokenizer, settings["max_length"], settings.get("system_prompt", "")
    )
    place.say(f"data {settings['data']}: {fields.words()}; {encoded.words()}")
    return examples.split(encoded.rows, settings["validation_share"], settings["seed"])


def records_of(settings):
    """Records of a file, or of a data set by name."""
    path = Path(settings["data"])
    if path.is_file():
        return examples.read_file(path)
    import datasets

    name = settings.get("data_config") or None
    try:
        return datasets.load_dataset(settings["data"], name, split=settings.get("data_split") or "train")
    except (OSError, ValueError) as error:
        raise examples.DataError(f"The data {settings['data']} cannot be loaded: {error}.") from error


def steps_of(settings, rows, ranks):
    """Optimizer steps of the run, and those over which the learning rate rises."""
    micro = math.ceil(rows / (ranks * settings["micro_batch_size"]))
    per_epoch = max(1, math.ceil(micro / settings["gradient_accumulation_steps"]))
    total = settings.get("steps") or math.ceil(per_epoch * settings["epochs"])
    return total, math.ceil(total * settings["warmup_share"])


def optimizer_of(settings, device, place):
    """The optimizer as the Trainer knows it."""
    wanted = settings["optimizer"]
    if device == "cpu":
        wanted = "adamw"
    elif settings["strategy"] != "ddp" and UNDER_DEEPSPEED and wanted != UNDER_DEEPSPEED:
        place.say(f"optimizer {UNDER_DEEPSPEED} instead of {wanted}, which stops under DeepSpeed")
        wanted = UNDER_DEEPSPEED
    return _OPTIMIZERS[wanted]


def arguments_of(settings, options, device, bf16, total, warmup, evaluated, place):
    """TrainingArguments; a name that this version of transformers lacks is left out or has another."""
    import modelling
    from transformers import TrainingArguments

    zero = settings["strategy"] != "ddp"
    values = {
        "output_dir": settings["output"],
        "per_device_train_batch_size": settings["micro_batch_size"],
        "per_device_eval_batch_size": settings["micro_batch_size"],
        "gradient_accumulation_steps": settings["gradient_accumulation_steps"],
        "num_train_epochs": settings["epochs"],
        "max_steps": settings.get("steps") or -1,
        "learning_rate": settings["learning_rate"],
        "lr_scheduler_type": _SCHEDULES[settings["lr_decay_style"]],
        "warmup_steps": warmup,
        "weight_decay": settings["weight_decay"],
        "max_grad_norm": settings["gradient_clipping"],
        "optim": optimizer_of(settings, device, place),
        "bf16": bf16 and device == "cuda",
        "fp16": not bf16 and device == "cuda",
        "use_cpu": device == "cpu",
        "logging_steps": settings["log_interval"],
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a NaN loss must be seen
        "save_strategy": "steps",
        "save_steps": settings["checkpoint_interval"],
        "save_total_limit": settings["checkpoints_kept"],
        "eval_strategy": "steps" if evaluated else "no",
        "eval_steps": settings["eval_interval"],
        "ddp_find_unused_parameters": False if place.ranks > 1 and not zero else None,
        "deepspeed": options.deepspeed_config if zero else None,
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "report_to": [],
        "seed": settings["seed"],
        "data_seed": settings["seed"],
        "metric_for_best_model": "eval_loss" if evaluated else None,
        "greater_is_better": False if evaluated else None,
        # Named differently over the versions of transformers.
        "group_by_length": settings["group_by_length"],
        "train_sampling_strategy": "group_by_length" if settings["group_by_length"] else "random",
    }
    values = settings_of.takes(TrainingArguments, values)
    # "gradient_" became "activation_" in transformers 5.24, which warns of the old name.
    renamed = settings_of.takes(TrainingArguments, {"activation_checkpointing": True})
    name = "activation_checkpointing" if renamed else "gradient_checkpointing"
    values[name] = settings["gradient_checkpointing"]
    values[f"{name}_kwargs"] = {"use_reentrant": modelling.reentrant(settings["strategy"])}
    return TrainingArguments(**values)


def trainer_of(model, arguments, tokenizer, rows, checked, settings, signals, place, device):
    """The Trainer, with our own printing in place of its own."""
    import reporting
    import torch
    from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, Trainer

    def collate(batch):
        return {k: torch.tensor(v) for k, v in examples.padded(batch, tokenizer.pad_token_id).items()}

    trainer = Trainer(
        model=model, args=arguments, train_dataset=rows, eval_dataset=checked or None, data_collator=collate
    )
    for theirs in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(theirs)
    stopping = reporting.Stopping(signals, place, device)
    ours = [reporting.Figures(place), reporting.Marking(settings["strategy"], place), stopping]
    if checked and settings.get("patience"):
        ours.append(EarlyStoppingCallback(early_stopping_patience=settings["patience"]))
    for callback in ours:
        trainer.add_callback(callback)
    return trainer, stopping


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
