"""Owns what a word amounts to when the script runs with its defaults: text, numbers, and which branches run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gpt_tune.lint.shell.arithmetic import evaluate
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.shell.tree import Block, Command, Part, Word

_DEFAULTS = frozenset({":-", "-", ":=", "="})
_DEEPEST = 12
_END = 1 << 60
# Where a name is read: an offset in the file, and whether a name given no value before it is unknown there.
_Place: TypeAlias = tuple[int, bool] | None
_COMPARE = re.compile(
    r"""^(?:\[\[?|test)?\s*(?:"|')?(?P<left>\$?\{?[\w.:-]*\}?)(?:"|')?\s*
    (?P<op>-eq|-ne|-ge|-gt|-le|-lt|===?|==|=|!=|>=|<=|>|<)\s*
    (?:"|')?(?P<right>\$?\{?[\w.:-]*\}?)(?:"|')?\s*(?:\]\]?)?$""",
    re.VERBOSE,
)
_ARITHMETIC_TEST = re.compile(r"^\(\(\s*(.*?)\s*\)\)$")


class Values:
    """Looks names up in the settings of one script.

    seeds: what the scheduler gives. overrides: what the caller sets, which wins where the script lets it.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seeds: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.seeds = dict(seeds or {})
        self.overrides = dict(overrides or {})
        self.by_name: dict[str, list[Setting]] = {}
        for setting in settings:
            if setting.how not in ("prefix", "option"):
                self.by_name.setdefault(setting.name, []).append(setting)
        self.families: dict[int, list[Block]] = {}
        self._known: dict[tuple[str, int], str | None] = {}
        self._states: dict[int, bool | None] = {}
        self._depth = 0

    def learn_branches(self, commands: Sequence[Command]) -> None:
        """Remember which branches belong together, for `else`."""
        for command in commands:
            for block in command.blocks:
                family = self.families.setdefault(block.family, [])
                if block.kind == "if" and block not in family:
                    family.append(block)

    # -- text ------------------------------------------------------------------------------------------------

    def text(self, word: Word | None, strict: bool = False) -> str | None:
        """The word's text with every expansion worked out, or None when one is unknown.

        A variable has the value it was given before the word stands; strict: one given none there is unknown,
        else it has what it gets later, as in a function that is called later.
        """
        if word is None:
            return None
        return self._whole(word, (word.start or _END, strict))

    def number(self, word: Word | None) -> int | None:
        """The word as a whole number, or None."""
        text = self.text(word)
        return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,15}", text.strip()) else None

    def expand(self, word: Word | None) -> str:
        """The word's text with what is known worked out and the rest kept as `${NAME}`."""
        if word is None:
            return ""
        pieces: list[str] = []
        for part in word.parts:
            known = self.text_of(part, (word.start or _END, False))
            if known is not None:
                pieces.append(known)
            elif part.kind == "variable":
                pieces.append(self._partly(part.text))
            else:
                pieces.append(f"$({part.text})")
        return "".join(pieces)

    def _partly(self, name: str) -> str:
        """An unknown variable whose single setting is a word: that word, expanded as far as it goes."""
        live = self.live(name)
        if len(live) == 1 and live[0].default is not None and self._depth < _DEEPEST and not live[0].append:
            self._depth += 1
            text = self.expand(live[0].default)
            self._depth -= 1
            return text
        return f"${{{name}}}"

    def variable(self, name: str, at: _Place = None) -> str | None:
        """What a variable holds at a place, or at the end of a run with defaults; None when it is not known."""
        live = self._reaching(name, at)
        key = (name, len(live) if at is None or live else -1)
        if key in self._known:
            return self._known[key]
        if self._depth >= _DEEPEST:
            return None
        self._known[key] = None  # a name that refers to itself is unknown
        self._depth += 1
        self._known[key] = self._look_up(name, live)
        self._depth -= 1
        return self._known[key]

    def live(self, name: str) -> list[Setting]:
        """Settings of a name in branches that are not known to be skipped."""
        return [
            s
            for s in self.by_name.get(name, [])
            if (s.word is not None or s.items is not None) and not self.dead(s.blocks)
        ]

    def _reaching(self, name: str, at: _Place) -> list[Setting]:
        """Live settings that are made before a place; functions run at any time."""
        live = self.live(name)
        if at is None:
            return live
        before = [s for s in live if s.start < at[0] or any(b.kind == "function" for b in s.blocks)]
        return before if before or at[1] else live

    def _look_up(self, name: str, live: list[Setting]) -> str | None:
        given = self.overrides.get(name)
        if given is not None and all(s.overridable for s in live):
            return given
        if not live:
            return self.seeds.get(name)
        base = max((i for i, s in enumerate(live) if not s.append and not self._guarded(s)), default=0)
        texts = {self._setting_text(s, i == 0) for i, s in enumerate(live[base:], base) if not s.append}
        if len(texts) != 1:
            return None
        (text,) = texts
        for setting in live[base:]:
            if setting.append:
                more = self._setting_text(setting, True)
                text = None if text is None or more is None or self._guarded(setting) else text + more
        return text

    def _setting_text(self, setting: Setting, first: bool) -> str | None:
        """What a setting gives its name. first: none before it did, so a default counts."""
        at = (setting.start, True)
        if setting.items is not None:
            return self._joined(setting.items, at)
        if not first and setting.how == "default":
            known = self.variable(setting.name, at)
            return self._whole(setting.word, at) if known == "" else known
        return self._whole(setting.default if first else setting.word, at)

    def _joined(self, words: Sequence[Word], at: _Place) -> str | None:
        texts = [self._whole(w, at) for w in words]
        return None if any(t is None for t in texts) else " ".join(t for t in texts if t is not None)

    def _whole(self, word: Word | None, at: _Place) -> str | None:
        if word is None:
            return None
        pieces = [self.text_of(p, at) for p in word.parts]
        return None if any(p is None for p in pieces) else "".join(p for p in pieces if p is not None)

    def _guarded(self, setting: Setting) -> bool:
        if not setting.conditional:
            return False
        kinds = ("if", "else", "case", "while", "function")
        states = [self.state(b) for b in setting.blocks if b.kind in kinds]
        return not states or any(s is not True for s in states)

    def text_of(self, part: Part, at: _Place = None) -> str | None:
        """What one part of a word amounts to, or None."""
        if part.kind == "text":
            return part.text
        if part.kind == "arithmetic":
            value = evaluate(part.text, lambda name: self.variable(name, at))
            return None if value is None else str(value)
        if part.kind != "variable":
            return None
        if part.operator in _DEFAULTS:
            known = self.variable(part.text, at)
            if known or (known is not None and ":" not in part.operator):
                return known
            if known is None and self._reaching(part.text, at):
                return None  # it is set to something that is not known
            return self._whole(part.argument, at) if part.argument is not None else ""
        if part.operator and part.operator not in (":?", "?", "[@]", "[*]"):
            return None
        return self.variable(part.text, at)

    # -- branches --------------------------------------------------------------------------------------------

    def dead(self, blocks: Sequence[Block]) -> bool:
        """Whether a run with defaults skips what stands in these blocks."""
        return any(self.state(b) is False for b in blocks)

    def state(self, block: Block) -> bool | None:
        """Whether a branch runs with the defaults: None when that is not known."""
        if block.number not in self._states:
            self._states[block.number] = None  # while it is being worked out
            self._states[block.number] = self._work_out(block)
        return self._states[block.number]

    def _work_out(self, block: Block) -> bool | None:
        if block.kind == "if":
            return self.holds(block.head)
        if block.kind == "else":
            states = [self.state(b) for b in self.families.get(block.family, [])] or [self.holds(block.head)]
            if any(s is True for s in states):
                return False
            return True if all(s is False for s in states) else None
        return None

    def holds(self, condition: str) -> bool | None:
        """Whether a simple comparison is true with the defaults."""
        text = condition.strip()
        inner = _ARITHMETIC_TEST.match(text)
        match = _COMPARE.match(inner.group(1) if inner else text)
        if match is None:
            return None
        left, right = self._operand(match["left"], bool(inner)), self._operand(match["right"], bool(inner))
        if left is None or right is None:
            return None
        return _compare(left, match["op"], right)

    def _operand(self, text: str, arithmetic: bool) -> str | None:
        name = re.fullmatch(r"\$\{?([A-Za-z_]\w*)(?::?-([\w.]*))?\}?", text)
        if name is not None:
            known = self.variable(name.group(1))
            return known if known is not None else name.group(2)
        if arithmetic and re.fullmatch(r"[A-Za-z_]\w*", text):
            return self.variable(text)
        return None if "$" in text else text


def _compare(left: str, operator: str, right: str) -> bool | None:
    if operator in ("=", "==", "==="):
        return left == right
    if operator == "!=":
        return left != right
    try:
        a, b = int(left), int(right)
    except ValueError:
        return None
    return {
        "-eq": a == b, "-ne": a != b, "-ge": a >= b, "-gt": a > b, "-le": a <= b, "-lt": a < b,
        ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b,
    }[operator]  # fmt: skip
