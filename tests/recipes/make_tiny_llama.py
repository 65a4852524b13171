"""Write random weights of a tiny Llama, tokenizer, records: FOLDER [chat] [llama3] [KV_HEADS]. Needs transformers."""

# mypy: ignore-errors
import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
    "{{ eos_token if m.role == 'assistant' }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def tokenizer(chat):
    """A byte-level tokenizer of 320 tokens, made here."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    words = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    text = (
        "what is two plus three? the answer is five, because one instruction has one response and some input"
    )
    inner.train_from_iterator([text] * 20, words)
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    if chat:
        made.chat_template = TEMPLATE
    return made


def main():
    folder = Path(sys.argv[1])
    made = tokenizer(chat="chat" in sys.argv[2:])
    angles = {}
    if "llama3" in sys.argv[2:]:
        # As Llama 3.1: no unknown token, tokens added behind those that are counted, scaled angles.
        made.unk_token = None
        made.add_tokens([f"<|reserved_special_token_{i}|>" for i in range(64)], special_tokens=True)
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 64}  # fmt: skip
        angles = {"rope_parameters": {**scaling, "rope_theta": 500000.0}}
    made.save_pretrained(folder)
    torch.manual_seed(0)
    groups = next((int(a) for a in sys.argv[2:] if a.isdigit()), 2)
    # Weights this large make attention matter: a wrong order of rows changes the loss by a tenth.
    spread = 0.02 if "chat" in sys.argv[2:] else 0.3
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=groups, max_position_embeddings=256, initializer_range=spread, **angles,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    pairs = [(a, b) for a in range(6) for b in range(6)]
    rows = [
        {
            "Question": f"what is {a} plus {b}?",
            "Complex_CoT": f"{a}+{b}",
            "Response": f"the answer is {a + b}",
        }
        for a, b in pairs
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    alpaca = [{"instruction": r["Question"], "input": "", "output": r["Response"]} for r in rows]
    (folder / "alpaca.json").write_text(json.dumps(alpaca))


if __name__ == "__main__":
    main()
