"""The model: 4-bit base weights, adapters on them, and what each strategy needs of both."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from settings import SettingsError
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig


def tokenizer_of(weights):
    """The tokenizer, with a token to pad with."""
    tokenizer = AutoTokenizer.from_pretrained(weights)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def load(settings, place, device, half, adapter):
    """The model with its adapters. half: torch.bfloat16, float16 or float32. adapter: a folder, or None."""
    zero3 = settings["strategy"] == "zero3"
    options = {"dtype": half}
    if settings["base_weights"] != "16bit":
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=settings["base_weights"],
            bnb_4bit_use_double_quant=settings["double_quantisation"],
            bnb_4bit_compute_dtype=half,
            # ZeRO-3 splits tensors of one dtype: packed weights travel as 16-bit numbers.
            bnb_4bit_quant_storage=half if zero3 else torch.uint8,
        )
    if not zero3:
        # Each rank its own whole copy; without this a quantised model is spread over all GPUs it sees.
        options["device_map"] = {"": f"cuda:{place.local_rank}" if device == "cuda" else "cpu"}
    model = _from_pretrained(settings["weights"], options)
    model.config.use_cache = False
    _prepare(model, settings, zero3)
    if adapter is not None:
        return PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    return get_peft_model(model, _lora(settings, model))


def _from_pretrained(weights, options):
    try:
        return AutoModelForCausalLM.from_pretrained(weights, **options)
    except TypeError as error:
        if "dtype" not in str(error):
            raise
        options["torch_dtype"] = options.pop("dtype")  # transformers before 4.56
        return AutoModelForCausalLM.from_pretrained(weights, **options)


def reentrant(strategy):
    """ZeRO-3 gathers weights in hooks that only the re-entrant checkpoint runs again in backward."""
    return strategy == "zero3"


def _prepare(model, settings, zero3):
    """What must hold before adapters are added: frozen weights, gradients through checkpointed layers."""
    checkpointing = settings["gradient_checkpointing"]
    how = {"use_reentrant": reentrant(settings["strategy"])}
    if settings["base_weights"] != "16bit" and not zero3:
        prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs=how
        )
        return
    # ZeRO-3 splits tensors of one dtype, so nothing is turned into 32 bits there.
    for parameter in model.parameters():
        parameter.requires_grad = False
    if checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None)
        if enable is not None:
            enable(how)
        else:  # its name before transformers 5.24
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
        # Frozen embeddings give no gradient, and a checkpointed layer without one is never run again.
        model.enable_input_require_grads()


def _lora(settings, model):
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "weight")}
    wanted = list(settings["lora_targets"])
    found = [name for name in wanted if name in names]
    if not found:
        raise SettingsError(
            f"The model has none of the layers {', '.join(wanted)}; it has {', '.join(sorted(names)[:20])}."
        )
    return LoraConfig(
        r=settings["lora_rank"],
        lora_alpha=settings["lora_alpha"],
        lora_dropout=settings["lora_dropout"],
        target_modules=found,
        bias="none",
        task_type="CAUSAL_LM",
    )


def counted(model):
    """Trainable and all parameters; a packed 4-bit weight holds two a byte."""
    trained = everything = 0
    for parameter in model.parameters():
        count = getattr(parameter, "ds_numel", 0) or parameter.numel()
        if type(parameter).__name__ == "Params4bit":
            count *= 2 * parameter.element_size()
        everything += count
        trained += count if parameter.requires_grad else 0
    return trained, everything
