"""Owns what a word amounts to when the script runs with its defaults: text, numbers, and which branches run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpt_tune.lint.shell.arithmetic import evaluate
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.shell.tree import Block, Command, Part, Word

_DEFAULTS = frozenset({":-", "-", ":=", "="})
_DEEPEST = 12
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
        self._known: dict[str, str | None] = {}
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

    def text(self, word: Word | None) -> str | None:
        """The word's text with every expansion worked out, or None when one is unknown."""
        if word is None:
            return None
        pieces = [self.text_of(p) for p in word.parts]
        return None if any(p is None for p in pieces) else "".join(p for p in pieces if p is not None)

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
            known = self.text_of(part)
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

    def variable(self, name: str) -> str | None:
        """What a variable holds at the end of a run with defaults, or None."""
        if name in self._known:
            return self._known[name]
        if self._depth >= _DEEPEST:
            return None
        self._known[name] = None  # a name that refers to itself is unknown
        self._depth += 1
        self._known[name] = self._look_up(name)
        self._depth -= 1
        return self._known[name]

    def live(self, name: str) -> list[Setting]:
        """Settings of a name in branches that are not known to be skipped."""
        return [
            s
            for s in self.by_name.get(name, [])
            if (s.word is not None or s.items is not None) and not self.dead(s.blocks)
        ]

    def _look_up(self, name: str) -> str | None:
        live = self.live(name)
        given = self.overrides.get(name)
        if given is not None and all(s.overridable for s in live):
            return given
        if not live:
            return self.seeds.get(name)
        base = max((i for i, s in enumerate(live) if not s.append and not self._guarded(s)), default=0)
        texts = {self._setting_text(s) for s in live[base:] if not s.append}
        if len(texts) != 1:
            return None
        (text,) = texts
        for setting in live[base:]:
            if setting.append:
                more = self._setting_text(setting)
                text = None if text is None or more is None or self._guarded(setting) else text + more
        return text

    def _setting_text(self, setting: Setting) -> str | None:
        if setting.items is not None:
            texts = [self.text(w) for w in setting.items]
            return None if any(t is None for t in texts) else " ".join(t for t in texts if t is not None)
        return self.text(setting.default)

    def _guarded(self, setting: Setting) -> bool:
        if not setting.conditional:
            return False
        kinds = ("if", "else", "case", "while", "function")
        states = [self.state(b) for b in setting.blocks if b.kind in kinds]
        return not states or any(s is not True for s in states)

    def text_of(self, part: Part) -> str | None:
        """What one part of a word amounts to, or None."""
        if part.kind == "text":
            return part.text
        if part.kind == "arithmetic":
            value = evaluate(part.text, self.variable)
            return None if value is None else str(value)
        if part.kind != "variable":
            return None
        if part.operator in _DEFAULTS:
            known = self.variable(part.text)
            return known if known else self.text(part.argument) if part.argument is not None else ""
        if part.operator and part.operator not in (":?", "?", "[@]", "[*]"):
            return None
        return self.variable(part.text)

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
