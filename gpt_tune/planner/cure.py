"""Owns the change that makes an illegal layout legal: what its rule offers where it works, else the nearest that does.

A rule knows its own numbers only: 8 stages may be the nearest to 10 and break the batch, the chunks or the trainer.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_tune.layouts import choices, legality
from gpt_tune.layouts.batch import LayoutBatch
from gpt_tune.layouts.layout import Layout, Trainer
from gpt_tune.layouts.legality import Setting
from gpt_tune.layouts.rule import Violation, divisors
from gpt_tune.layouts.stages import divides_evenly, most_layers
from gpt_tune.planner.build import derived
from gpt_tune.planner.cure_values import KEYS, nearest_values, splits
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.types import PlanRequest

Bools = NDArray[np.bool_]
_KEY_VALUE = r"\b([a-z_]+(?:\.[a-z_]+)?)=([a-z0-9]+)"
_OFFER = re.compile(_KEY_VALUE + r"((?: or \d+)*)((?: with [a-z_.]+=\w+(?:, [a-z_.]+=\w+)*)?)")
_LENGTHS = re.compile(r"a sequence length of (\d+)(?: or (\d+))?")
_RULES = (*legality.RULES, *legality.WARNINGS)
_PLACE = {rule.id: i for i, rule in enumerate(_RULES)}


@dataclass(frozen=True, slots=True)
class _Change:
    """Keys with their new values, the one that is changed first and then those that follow. length: of the sequence."""

    keys: Mapping[str, Any]
    length: int | None = None

    @property
    def words(self) -> str:
        if self.length is not None:
            return f"a sequence length of {self.length}"
        first, *others = (f"{key}={_word(value)}" for key, value in self.keys.items())
        return f"{first} with {', '.join(others)}" if others else first


@dataclass(frozen=True, slots=True)
class _Tried:
    change: _Change
    request: PlanRequest
    layout: Layout


# Which layouts of a changed request fit into memory.
Fits = Callable[[PlanRequest, Sequence[Layout]], Sequence[bool]]


@dataclass(frozen=True, slots=True)
class Cure:
    """A change in words. fits: whether what it leads to fits into memory, where that was asked."""

    words: str
    fits: bool = True


def cures(
    request: PlanRequest, layouts: Sequence[Layout], faults: Sequence[Violation], fits: Fits | None = None
) -> list[Cure]:
    """For each layout and one rule it breaks: the change after which it breaks neither that rule nor a new one.

    Where there is none the rule's own words stay. What request.fixed names does not follow by itself.
    """
    offers = [
        [_tried(request, layout, change) for change in _offered(fault.fix)]
        for layout, fault in zip(layouts, faults)
    ]
    legal = _working(request, layouts, faults, offers)
    room = _with_room([tried for tries in offers for tried in tries], fits)
    found = []
    for layout, fault, tries, good in zip(layouts, faults, offers, legal):
        working = [tried for tried, works in zip(tries, good) if works]
        best = [tried for tried in working if id(tried) in room]
        if best or working:
            chosen = best or working
            words = fault.fix if len(chosen) == len(tries) else _together([t.change for t in chosen])
            found.append(Cure(words, bool(best)))
        else:
            found.append(_looked_for(request, layout, fault, fits) or Cure(fault.fix))
    return found


def _looked_for(request: PlanRequest, layout: Layout, fault: Violation, fits: Fits | None) -> Cure | None:
    """The nearest change that works: of the keys the rule names before others, few keys before many."""
    own = list(dict.fromkeys(key for change in _offered(fault.fix) for key in change.keys))
    keys = [*own, *(key for key in KEYS if key not in own)]
    changes = [_Change({key: v}) for key in keys for v in nearest_values(request, layout, key)]
    tries = [_tried(request, layout, change) for change in (*_offered(fault.fix), *changes)]
    if fault.rule == "gpus":
        tries += [_tried(request, layout, _Change(keys)) for keys in splits(request, layout)]
    tries += [whole for t in tries if (whole := _with_what_follows(t, request.fixed)) is not None]
    good = _working(request, [layout], [fault], [tries])[0]
    working = [tried for tried, works in zip(tries, good) if works]
    room = _with_room(working, fits)
    working = [tried for tried in working if id(tried) in room] or working
    if not working:
        return None
    best = min(working, key=lambda t: (next(iter(t.change.keys), "") not in own, len(t.change.keys)))
    return Cure(best.change.words, id(best) in room)


def _with_room(tries: Sequence[_Tried], fits: Fits | None) -> set[int]:
    """The identities of those that fit into memory; all of them where that is not asked."""
    if fits is None:
        return {id(tried) for tried in tries}
    groups: dict[tuple[Trainer, int], list[_Tried]] = defaultdict(list)
    for tried in tries:
        groups[tried.request.trainer, tried.request.seq_length].append(tried)
    room: set[int] = set()
    for group in groups.values():
        answers = fits(group[0].request, [tried.layout for tried in group])
        room |= {id(tried) for tried, answer in zip(group, answers) if answer}
    return room


def _offered(fix: str) -> Iterator[_Change]:
    """The changes that a rule's words name, each by itself: "a=1 or 2", "a=1 (or b=2)", "a=1 with b=2"."""
    for key, first, more, others in _OFFER.findall(fix):
        also = [f"{k}={v}" for k, v in re.findall(_KEY_VALUE, others)]
        for value in (first, *re.findall(r"\d+", more)):
            yield _Change(choices.parse_fix([f"{key}={value}", *also]))
    for lengths in _LENGTHS.findall(fix):
        yield from (_Change({}, int(n)) for n in lengths if n)


def _tried(request: PlanRequest, layout: Layout, change: _Change) -> _Tried:
    """The layout after a change; what is not fixed follows from it."""
    plain = {key: value for key, value in change.keys.items() if not key.startswith("trainer.")}
    asked = replace(
        request,
        trainer=choices.apply_to_trainer(request.trainer, change.keys),
        global_batch_size=plain.get("global_batch_size", layout.global_batch_size),
        seq_length=change.length or request.seq_length,
    )
    return _Tried(
        change, asked, derived(choices.apply(layout, plain), asked, {**request.fixed, **change.keys})
    )


def _with_what_follows(tried: _Tried, fixed: Mapping[str, Any]) -> _Tried | None:
    """The same with ranks, batch and experts brought in line where they do not follow by themselves, or None."""
    x, request = tried.layout, tried.request
    split = x.tensor_parallel * x.pipeline_parallel * x.context_parallel
    if request.gpus % split:
        return None
    extra: dict[str, Any] = {}
    ranks, whole = request.gpus // split, x.global_batch_size
    if x.data_parallel != ranks:
        extra["data_parallel"] = ranks
    if whole % ranks:
        whole = max(1, round(whole / ranks)) * ranks
        extra["global_batch_size"] = whole
    if x.micro_batch_size * x.gradient_accumulation_steps * ranks != whole:
        size = max(d for d in divisors(whole // ranks) if d <= x.micro_batch_size)
        extra |= {"micro_batch_size": size} if size != x.micro_batch_size else {}
        if "gradient_accumulation_steps" in fixed:
            extra["gradient_accumulation_steps"] = whole // ranks // size
    experts = math.gcd(ranks * x.context_parallel, x.expert_parallel, request.model.experts or 1)
    extra |= {"expert_parallel": experts} if experts != x.expert_parallel else {}
    if x.virtual_pipeline > 1 and not _chunks_fit(request, x):
        extra["virtual_pipeline"] = 1
    extra |= _recompute_that_follows(request, x)
    if not extra:
        return None
    change = replace(tried.change, keys={**tried.change.keys, **extra})
    return _tried(request, x, change)


def _chunks_fit(request: PlanRequest, x: Layout) -> bool:
    fits = divides_evenly(request.model.layers, x.pipeline_parallel, x.virtual_pipeline)
    return x.pipeline_parallel > 1 and bool(fits)


def _recompute_that_follows(request: PlanRequest, x: Layout) -> dict[str, Any]:
    """What full recompute has to say differently: layers that a stage holds, a method that does something."""
    if x.recompute.granularity != "full":
        return {}
    most = int(most_layers(request.model.layers, x.pipeline_parallel))
    extra: dict[str, Any] = {}
    if x.recompute.method == "block" and request.trainer.name != "megatron-lm":
        extra["recompute.method"] = "uniform"
    if (x.recompute.layers or 1) > most:
        extra["recompute.layers"] = most
    return extra


def _working(
    request: PlanRequest,
    layouts: Sequence[Layout],
    faults: Sequence[Violation],
    tries: Sequence[Sequence[_Tried]],
) -> list[list[bool]]:
    """Which changes take the rule away and break none that was kept before."""
    if not layouts:
        return []
    before = _shown(_broken(Evaluator(request).setting, layouts))
    groups: dict[tuple[Trainer, int], list[tuple[int, int]]] = defaultdict(list)
    for number, group in enumerate(tries):
        for place, tried in enumerate(group):
            groups[tried.request.trainer, tried.request.seq_length].append((number, place))
    good = [[False] * len(group) for group in tries]
    for (trainer, length), members in groups.items():
        setting = Evaluator(replace(request, trainer=trainer, seq_length=length)).setting
        after = _broken(setting, [tries[n][place].layout for n, place in members])
        for column, (n, place) in enumerate(members):
            fresh = after[: len(legality.RULES), column] & ~before[: len(legality.RULES), n]
            good[n][place] = not (fresh.any() or after[_PLACE[faults[n].rule], column])
    return good


def _broken(setting: Setting, layouts: Sequence[Layout]) -> Bools:
    """For each rule (row) and layout (column) whether it is broken."""
    batch = LayoutBatch.of(layouts)
    return np.asarray([rule.mask(batch, setting) for rule in _RULES], dtype=np.bool_)


def _shown(broken: Bools) -> Bools:
    """Without rules that are not shown beside a wrong number of GPUs."""
    wrong = broken[_PLACE["gpus"]]
    hidden = np.zeros_like(broken)
    hidden[[_PLACE[rule] for rule in legality.FOLLOW_FROM_GPUS]] = wrong
    return np.asarray(broken & ~hidden)


def _together(changes: Sequence[_Change]) -> str:
    """Several changes that each work: "tensor_parallel=4 or 8"."""
    words = [change.words for change in changes]
    first = words[0][: max(words[0].rfind("="), words[0].rfind(" ")) + 1]
    same = [w.removeprefix(first) for w in words[1:] if w.startswith(first)]
    return " or ".join([words[0], *same, *(w for w in words[1:] if not w.startswith(first))])


def _word(value: Any) -> str:
    return "null" if value is None else str(value).lower()
