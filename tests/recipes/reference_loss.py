"""Loss of Hugging Face weights on the first batch of a Llama 2 fine-tuning run: RUN_DIR WEIGHTS CHECKOUT BATCH LENGTH.

The first batch of the trainer's cyclic loader: BATCH of the rows of prepared/data.json in the order of
torch.randperm seeded with 0, over as many rows as whole batches have. Needs torch and transformers.
"""

# mypy: ignore-errors
import importlib.util
import sys
import types

import torch
from transformers import AutoTokenizer, LlamaForCausalLM


def main():
    run, weights, checkout, batch, length = *sys.argv[1:4], *map(int, sys.argv[4:6])
    spec = importlib.util.spec_from_file_location("data", f"{checkout}/megatron/data/prompt_dataset.py")
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    tokenizer = AutoTokenizer.from_pretrained(f"{run}/prepared/tokenizer", padding_side="right")
    tokenizer.model_max_length = length
    rows = data.SupervisedDataset(f"{run}/prepared/data.json", types.SimpleNamespace(tokenizer=tokenizer))
    generator = torch.Generator()
    generator.manual_seed(0)
    order = torch.randperm(len(rows) // batch * batch, generator=generator).tolist()[:batch]
    ids = torch.stack([rows[i]["input_ids"] for i in order])
    labels = torch.stack([rows[i]["labels"] for i in order])[:, 1:]
    model = LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    learned = (labels != tokenizer.pad_token_id).flatten().float()
    print(float((each * learned).sum() / learned.sum()))


if __name__ == "__main__":
    main()
