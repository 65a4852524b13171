"""Turn records of a data set into token ids and labels. Plain Python: it needs no library.

A record becomes a conversation, a conversation becomes segments of text, and only the answers' tokens are
learned: every other label is IGNORED, which the loss of transformers leaves out.
"""

import gzip
import json
from pathlib import Path

IGNORED = -100
# Usual names, in the order they are tried; compared without case.
PROMPTS = ("instruction", "question", "prompt", "query")
INPUTS = ("input", "context")
ANSWERS = ("output", "answer", "response", "completion")
CONVERSATIONS = ("messages", "conversations", "conversation")
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}


class DataError(Exception):
    """Data that cannot be trained on; the text is one sentence for the person who gave it."""


# -- reading -------------------------------------------------------------------------------------
def read_file(path):
    """Records of a .json, .jsonl or .parquet file (also .gz of the first two)."""
    path = Path(path)
    kind = [s.lower() for s in path.suffixes if s.lower() != ".gz"][-1:]
    if kind == [".parquet"]:
        return _parquet(path)
    if kind not in ([".json"], [".jsonl"], [".ndjson"]):
        raise DataError(f"{path} is no .json, .jsonl or .parquet file.")
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    # A .json file with one object a line is common, too.
    if kind == [".json"]:
        try:
            return _list(json.loads(text), path)
        except ValueError:
            pass
    return _lines(text, path)


def _list(data, path):
    if isinstance(data, dict):
        lists = [v for v in data.values() if isinstance(v, list)]
        if len(lists) != 1:
            return [data]
        data = lists[0]
    if not isinstance(data, list):
        raise DataError(f"{path} holds no list of records.")
    return data


def _lines(text, path):
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise DataError(f"Line {number} of {path} is no JSON: {error}.") from error
    return records


def _parquet(path):
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path} needs the package pyarrow, which is not installed.") from error
    return pyarrow.parquet.read_table(path).to_pylist()


# -- records to conversations --------------------------------------------------------------------
class Fields:
    """Which field of a record holds what. Names left empty are looked for among the usual ones."""

    def __init__(self, names, columns):
        self.columns = list(columns)
        self.messages = self._find(names.get("messages_field"), CONVERSATIONS)
        self.prompt = self._find(names.get("prompt_field"), PROMPTS)
        self.answer = self._find(names.get("answer_field"), ANSWERS)
        self.input = self._find(names.get("input_field"), INPUTS)
        self.reasoning = self._find(names.get("reasoning_field"), ())
        if names.get("prompt_field") or names.get("answer_field"):
            self.messages = None if not names.get("messages_field") else self.messages
        if self.messages is None and (self.prompt is None or self.answer is None):
            missing = "a question" if self.prompt is None else "an answer"
            raise DataError(
                f"No field holds {missing}: the records have {', '.join(self.columns[:12])}. "
                "Name it with finetune.prompt_field, answer_field or messages_field."
            )
        if self.input == self.prompt:
            self.input = None

    def _find(self, wanted, usual):
        if wanted:
            if wanted not in self.columns:
                raise DataError(
                    f"The records have no field {wanted!r}; they have {', '.join(self.columns[:12])}."
                )
            return wanted
        by_name = {c.lower(): c for c in reversed(self.columns)}
        return next((by_name[u] for u in usual if u in by_name), None)

    def words(self):
        """What was found, for the log."""
        if self.messages:
            return f"conversations in {self.messages!r}"
        parts = [f"questions in {self.prompt!r}", f"answers in {self.answer!r}"]
        parts += [f"context in {self.input!r}"] if self.input else []
        parts += [f"reasoning in {self.reasoning!r}"] if self.reasoning else []
        return ", ".join(parts)


def conversation(record, fields, system=""):
    """A record as a list of {role, content}; None when there is nothing to learn in it."""
    if not isinstance(record, dict):
        raise DataError(f"A record is no object with fields: {str(record)[:60]}.")
    turns = _turns(record.get(fields.messages)) if fields.messages else _pair(record, fields)
    if not any(t["role"] == "assistant" and t["content"].strip() for t in turns):
        return None
    if system and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": system}, *turns]
    return turns


def _pair(record, fields):
    question, answer = _text(record.get(fields.prompt)), _text(record.get(fields.answer))
    more = _text(record.get(fields.input)) if fields.input else ""
    thought = _text(record.get(fields.reasoning)) if fields.reasoning else ""
    if more.strip():
        question = f"{question}\n\n{more}"
    if thought.strip() and answer.strip():
        answer = f"<think>\n{thought.strip()}\n</think>\n\n{answer}"
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _turns(value):
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DataError(f"A conversation is neither a list nor JSON: {value[:60]!r}.") from error
    turns = []
    for turn in value or []:
        if not isinstance(turn, dict):
            raise DataError(f"A conversation holds something that is no message: {str(turn)[:60]}.")
        role = str(turn.get("role", turn.get("from", ""))).lower()
        content = turn.get("content", turn.get("value"))
        turns.append({"role": _ROLES.get(role, role), "content": _text(content)})
    while turns and turns[-1]["role"] != "assistant":
        turns.pop()  # nothing is learned after the last answer
    return turns


def _text(value):
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- conversations to segments -------------------------------------------------------------------
def segments(turns, tokenizer):
    """Texts in order, each with whether it is an answer to learn."""
    if not getattr(tokenizer, "chat_template", None):
        return _plain(turns, tokenizer)
    done, parts = "", []
    for index, turn in enumerate(turns):
        if turn["role"] != "assistant":
            continue
        before = _templated(tokenizer, turns[:index], True)
        after = _templated(tokenizer, turns[: index + 1], False)
        if before.startswith(done) and after.startswith(before):
            parts += [(before[len(done) :], False), (after[len(before) :], True)]
            done = after
        else:
            # The template rewrites earlier turns (some drop old reasoning): learn the last answer only.
            parts = None
            break
    return parts if parts is not None else _last(turns, tokenizer)


def _last(turns, tokenizer):
    before = _templated(tokenizer, turns[:-1], True)
    after = _templated(tokenizer, turns, False)
    if after.startswith(before):
        return [(before, False), (after[len(before) :], True)]
    return [(before, False), (turns[-1]["content"] + (tokenizer.eos_token or ""), True)]


def _templated(tokenizer, turns, ask):
    try:
        return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=ask)
    except Exception as error:
        roles = ", ".join(t["role"] for t in turns)
        raise DataError(f"The model's chat template refuses a conversation of {roles}: {error}.") from error


def _plain(turns, tokenizer):
    """A model without a chat template: headings that any model can read."""
    headings = {"system": "### System:", "user": "### Instruction:", "assistant": "### Response:"}
    parts, text = [], tokenizer.bos_token or ""
    for turn in turns:
        heading = headings.get(turn["role"], f"### {turn['role'].capitalize()}:")
        text += f"{heading}\n"
        if turn["role"] == "assistant":
            parts += [(text, False), (turn["content"] + (tokenizer.eos_token or ""), True)]
            text = "\n\n"
        else:
            text += f"{turn['content']}\n\n"
    return parts


# -- segments to tokens --------------------------------------------------------------------------
class Encoded:
    """Token ids with labels, and what was lost on the way."""

    def __init__(self):
        self.rows = []
        self.shortened = self.too_long = self.empty = 0

    def words(self):
        """The counts, for the log."""
        lost = [
            f"{number:,} {what}"
            for number, what in (
                (self.shortened, "cut at the end"),
                (self.too_long, "left out: the question alone fills the length"),
                (self.empty, "left out: nothing to learn in them"),
            )
            if number
        ]
        return f"{len(self.rows):,} examples" + (f" ({'; '.join(lost)})" if lost else "")


def encode(records, names, tokenizer, max_length, system=""):
    """Every record as ids and labels of at most max_length tokens."""
    records = list(records)
    if not records:
        raise DataError("The data holds no records.")
    first = records[0]
    if not isinstance(first, dict):
        raise DataError(f"A record is no object with fields: {str(first)[:60]}.")
    fields = Fields(names, first.keys())
    found = Encoded()
    for record in records:
        turns = conversation(record, fields, system)
        if turns is None:
            found.empty += 1
            continue
        ids, labels = tokens(segments(turns, tokenizer), tokenizer)
        if all(label == IGNORED for label in labels[:max_length]):
            found.too_long += 1
            continue
        found.shortened += len(ids) > max_length
        found.rows.append({"input_ids": ids[:max_length], "labels": labels[:max_length]})
    if not found.rows:
        raise DataError(f"No example can be learned at {max_length} tokens: {found.words()}.")
    return found, fields


def tokens(parts, tokenizer):
    """Ids and labels of segments. Each is cut into tokens by itself, so that none is half question, half answer."""
    ids, labels = [], []
    for text, learned in parts:
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += piece
        labels += piece if learned else [IGNORED] * len(piece)
    return ids, labels


def split(rows, share, seed):
    """Training and validation rows; the same for the same seed on every rank and in every start."""
    import random

    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    kept = min(len(rows) - 1, round(len(rows) * share)) if share > 0 else 0
    return [rows[i] for i in order[kept:]], [rows[i] for i in order[:kept]]


def padded(rows, pad, multiple=8):
    """Rows of one batch at one length: lists of ids, labels and attention masks."""
    longest = max(len(r["input_ids"]) for r in rows)
    width = -(-longest // multiple) * multiple
    batch = {"input_ids": [], "labels": [], "attention_mask": []}
    for row in rows:
        gap = width - len(row["input_ids"])
        batch["input_ids"].append(row["input_ids"] + [pad] * gap)
        batch["labels"].append(row["labels"] + [IGNORED] * gap)
        batch["attention_mask"].append([1] * len(row["input_ids"]) + [0] * gap)
    return batch
