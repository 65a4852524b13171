"""What the trainer needs before it starts: checked weights, a tokenizer that adds nothing, data in its form.

    prepare.py --weights DIR --checkout DIR --settings llama2.json --data FILE --out DIR --seq-length N --batch N

Run once, on one rank. Writes OUT/tokenizer, OUT/data.json and OUT/epsilon.
Exit codes: 0 done, 2 weights or data refused, 1 anything else.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import examples
import weights

# Tokens of Llama 3 that no text holds.
SPARE = ("<|finetune_right_pad_id|>", "<|reserved_special_token_0|>")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    for name in ("weights", "checkout", "settings", "data", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seq-length", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="examples that all ranks take at once")
    options = parser.parse_args(argv)
    try:
        run(options)
    except (weights.WeightsError, examples.DataError) as error:
        print(f"prepare.py: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def run(options):
    settings = json.loads(Path(options.settings).read_text(encoding="utf-8"))
    config = weights.read_config(options.weights)
    weights.check(config, settings["model"], settings["rope"])
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(options.weights, config["vocab_size"])
    tokenizer.save_pretrained(out / "tokenizer")
    headings = prompts_of(options.checkout)
    records = read(options.data, settings)
    kept, dropped = rows(records, settings, headings, tokenizer, options.seq_length)
    if len(kept) < options.batch:
        raise examples.DataError(
            f"The data has {len(kept)} examples that can be learned at {options.seq_length} tokens; all ranks together "
            f"take {options.batch} at once."
        )
    write(out / "data.json", json.dumps(kept, ensure_ascii=False))
    write(out / "epsilon", repr(weights.epsilon(config)))
    print(
        f"prepared {len(kept):,} examples ({dropped:,} left out: nothing of the answer within "
        f"{options.seq_length:,} tokens); padding is {tokenizer.pad_token!r}",
        flush=True,
    )


def write(path, text):
    """Renamed into place, so that no start reads half of it."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def tokenizer_of(folder, rows_of_embedding):
    """The tokenizer, with tokens of its own to pad with and for what it does not know.

    The trainer would add a token where there is none: one beyond the rows that the weights have.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if len(tokenizer) > rows_of_embedding:
        raise weights.WeightsError(
            f"The tokenizer has {len(tokenizer)} tokens and the embedding {rows_of_embedding} rows: "
            "some tokens have no row."
        )
    known = tokenizer.get_vocab()
    token, found = choose_padding(
        tokenizer.pad_token,
        tokenizer.pad_token_id,
        tokenizer.unk_token,
        tokenizer.eos_token,
        rows_of_embedding,
        next((t for t in SPARE if t in known), None),
    )
    if not found:
        print(
            f"prepare.py: warning: {token!r} ends answers and is padding too, so the end of an answer is not learned",
            flush=True,
        )
    tokenizer.pad_token = token
    if tokenizer.unk_token is None:
        tokenizer.unk_token = token
    return tokenizer


def choose_padding(pad, pad_id, unknown, end, size, spare=None):
    """The token to pad with, and whether it is another one than the end of an answer. spare: one without a use."""
    if pad is not None and pad_id < size and pad != end:
        return pad, True
    if spare is not None:
        return spare, True
    if unknown is not None and unknown != end:
        return unknown, True
    if end is None:
        raise weights.WeightsError("The tokenizer has no token to pad with and none that ends an answer.")
    return end, False


def prompts_of(checkout):
    """The headings that the trainer puts around questions, from its own source."""
    path = Path(checkout) / "megatron/data/prompt_dataset.py"
    spec = importlib.util.spec_from_file_location("prompt_dataset", path)
    if not path.is_file():
        raise weights.WeightsError(
            f"{checkout} has no megatron/data/prompt_dataset.py: its trainer cannot fine-tune."
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROMPT_DICT


def read(data, settings):
    """Records of a file or data set."""
    if Path(data).is_file():
        return examples.read_file(data)
    import datasets

    try:
        return list(
            datasets.load_dataset(data, settings.get("data_config") or None, split=settings["data_split"])
        )
    except (OSError, ValueError) as error:
        raise examples.DataError(f"The data {data} cannot be loaded: {error}.") from error


def rows(records, settings, headings, tokenizer, seq_length):
    """Records as the trainer wants them, and how many were left out."""
    if not records or not isinstance(records[0], dict):
        raise examples.DataError("The data holds no list of records with fields.")
    fields = examples.Fields(settings, records[0].keys())
    if fields.messages:
        raise examples.DataError(
            "The data holds conversations; this trainer learns single questions and answers. "
            "Name finetune.prompt_field and finetune.answer_field."
        )
    limit = settings.get("max_samples") or len(records)
    kept, dropped = [], 0
    for record in records[:limit]:
        row = row_of(record, fields)
        if row is None or not fits(row, headings, tokenizer, seq_length):
            dropped += 1
        else:
            kept.append(row)
    return kept, dropped


def row_of(record, fields):
    """instruction, input and output of a record; None without an answer."""
    turns = examples.conversation({**record, **({fields.input: ""} if fields.input else {})}, fields)
    if turns is None:
        return None
    more = record.get(fields.input) if fields.input else ""
    return {"instruction": turns[0]["content"], "input": more or "", "output": turns[-1]["content"]}


def fits(row, headings, tokenizer, seq_length):
    """Whether a token of the answer is left when the trainer has cut the example at seq_length + 1 tokens."""
    heading = headings["prompt_input"] if row["input"] != "" else headings["prompt_no_input"]
    return len(tokenizer(heading.format_map(row))["input_ids"]) <= seq_length


if __name__ == "__main__":
    sys.exit(main())
