"""Owns regular expressions that a user types: always linear in the line, whatever the pattern and the text.

Python's own engine backtracks, so `(a+)+b` would freeze a screen. Here a pattern becomes a nondeterministic
automaton that is made deterministic as the text asks for it; every character is one look-up. What has no such
automaton (back references, look-around) is refused.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from gpt_tune.errors import UserError

# Python's own reader of patterns; it has another name on 3.10.
sre_parse: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

MAX_PATTERN = 400  # characters
MAX_STATES = 500  # of the automaton; bounded repeats multiply
MAX_CACHED = 4000  # transitions kept; a hostile line cannot fill memory
MAX_TEXT = 8192
MAX_SHOWN = 2048  # characters in which a match is marked
_SPLIT, _TEST, _ASSERT, _MATCH = "split", "test", "assert", "match"
_FOUND = -1
_START, _NO_WORD, _IN_WORD, _END = 0, 1, 2, 3  # what stands on one side of a place


class _State(NamedTuple):
    kind: str
    test: Callable[[str], bool] | None  # of _TEST
    wanted: str  # of _ASSERT
    out: tuple[int, ...]


class _Row(NamedTuple):
    """One state of the deterministic automaton: where the others may be, what was read last, and where to go."""

    states: frozenset[int]
    before: int
    following: dict[str, int]


class SafePattern:
    """A compiled pattern; ignores case. `search` says whether it is in a text, `find` where."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._states: list[_State] = []
        self._begin = self._build(_parsed(text))
        self._rows: list[_Row] = []
        self._numbers: dict[tuple[frozenset[int], int], int] = {}
        self._cached = 0

    def search(self, text: str) -> bool:
        """Whether the pattern is anywhere in the text."""
        number = self._row(frozenset((self._begin,)), _START)
        rows = self._rows
        for character in text[:MAX_TEXT]:
            following = rows[number].following.get(character)
            if following is None:
                number, rows = self._forget(number)
                following = self._step(rows[number], character)
                rows[number].following[character] = following
            if following == _FOUND:
                return True
            number = following
        return self._accepts(rows[number], _END)

    def find(self, text: str) -> tuple[int, int] | None:
        """[start, end) of the leftmost match, as long as it can be; None when there is none."""
        threads: dict[int, int] = {}  # state -> earliest start
        best: tuple[int, int] | None = None
        before = _START
        text = text[:MAX_SHOWN]
        for place in range(len(text) + 1):
            if best is None:
                threads.setdefault(self._begin, place)
            after = _kind(text[place]) if place < len(text) else _END
            moved: dict[int, int] = {}
            for state, start in self._closed(threads, before, after).items():
                kind, test, _, out = self._states[state]
                if kind == _MATCH and (best is None or start <= best[0]):
                    best = (start, place)
                elif kind == _TEST and test is not None and place < len(text) and test(text[place]):
                    moved[out[0]] = min(start, moved.get(out[0], start))
            threads = {s: b for s, b in moved.items() if best is None or b <= best[0]}
            if best is not None and not threads:
                break
            before = after
        return best

    # -- running -----------------------------------------------------------------------------------

    def _row(self, states: frozenset[int], before: int) -> int:
        number = self._numbers.get((states, before))
        if number is None:
            number = self._numbers[(states, before)] = len(self._rows)
            self._rows.append(_Row(states, before, {}))
        return number

    def _forget(self, number: int) -> tuple[int, list[_Row]]:
        """Starts the table anew once it is full, so that no text can fill memory; the row's new number."""
        self._cached += 1
        if self._cached <= MAX_CACHED:
            return number, self._rows
        row = self._rows[number]
        self._rows, self._numbers, self._cached = [], {}, 0
        return self._row(row.states, row.before), self._rows

    def _step(self, row: _Row, character: str) -> int:
        after = _kind(character)
        following = {self._begin}
        for state in self._closed(dict.fromkeys(row.states, 0), row.before, after):
            kind, test, _, out = self._states[state]
            if kind == _MATCH:
                return _FOUND
            if kind == _TEST and test is not None and test(character):
                following.add(out[0])
        return self._row(frozenset(following), after)

    def _accepts(self, row: _Row, after: int) -> bool:
        closed = self._closed(dict.fromkeys(row.states, 0), row.before, after)
        return any(self._states[s].kind == _MATCH for s in closed)

    def _closed(self, threads: dict[int, int], before: int, after: int) -> dict[int, int]:
        """All states reached without reading a character, with the earliest start of each."""
        reached: dict[int, int] = {}
        stack = sorted(threads.items(), key=lambda item: -item[1])
        while stack:
            state, start = stack.pop()
            if reached.get(state, start + 1) <= start:
                continue
            reached[state] = start
            kind, _, wanted, out = self._states[state]
            if kind == _SPLIT or (kind == _ASSERT and _holds(wanted, before, after)):
                stack.extend((o, start) for o in out)
        return reached

    # -- building ----------------------------------------------------------------------------------

    def _add(self, kind: str, out: tuple[int, ...] = (), test: Any = None, wanted: str = "") -> int:
        if len(self._states) >= MAX_STATES:
            raise _refused(self.text, "it is too large", "Use smaller repeat counts.")
        self._states.append(_State(kind, test, wanted, out))
        return len(self._states) - 1

    def _build(self, tree: Any) -> int:
        return self._sequence(tree, self._add(_MATCH))

    def _sequence(self, items: Any, following: int) -> int:
        for operation, argument in reversed(list(items)):
            following = self._one(str(operation), argument, following)
        return following

    def _one(self, operation: str, argument: Any, following: int) -> int:
        if operation in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "RANGE", "CATEGORY"):
            return self._add(_TEST, (following,), _test_of(operation, argument))
        if operation == "AT":
            return self._add(_ASSERT, (following,), wanted=str(argument))
        if operation == "BRANCH":
            return self._add(_SPLIT, tuple(self._sequence(part, following) for part in argument[1]))
        if operation == "SUBPATTERN":
            return self._sequence(argument[3], following)
        if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(int(argument[0]), int(argument[1]), argument[2], following)
        raise _refused(
            self.text,
            "look-around and back references have no fast way",
            "Use plain text, [ ] * + ? | ( ) ^ $ and \\b.",
        )

    def _repeat(self, least: int, most: int, body: Any, following: int) -> int:
        if most >= int(sre_parse.MAXREPEAT):
            loop = self._add(_SPLIT, ())
            inner = self._sequence(body, loop)
            self._states[loop] = _State(_SPLIT, None, "", (inner, following))
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._add(_SPLIT, (self._sequence(body, following), end))
        for _ in range(least):
            following = self._sequence(body, following)
        return following


def safe_pattern(text: str) -> SafePattern:
    """Compiles what a user typed. UserError says what is wrong with it."""
    return SafePattern(text)


def _parsed(text: str) -> Any:
    if not text:
        raise UserError("The pattern is empty.", "Type what to look for.")
    if len(text) > MAX_PATTERN:
        raise _refused(
            text, f"it has {len(text)} characters", f"The longest allowed has {MAX_PATTERN}: shorten it."
        )
    try:
        return sre_parse.parse(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "it is nested too deeply"
        raise _refused(
            text, str(reason), "Put a backslash before a character that is meant as itself."
        ) from error


def _refused(text: str, reason: str, hint: str) -> UserError:
    shown = "".join(c if c.isprintable() else "�" for c in text[:60])
    return UserError(f"The pattern {shown!r} cannot be used: {reason}.", hint)


def _test_of(operation: str, argument: Any) -> Callable[[str], bool]:
    """Whether a character fits, in either case."""
    if operation == "ANY":
        return lambda c: c != "\n"
    if operation == "LITERAL":
        wanted = {chr(argument), chr(argument).lower(), chr(argument).upper()}
        return lambda c: c in wanted or c.lower() in wanted
    if operation == "NOT_LITERAL":
        same = _test_of("LITERAL", argument)
        return lambda c: not same(c)
    if operation == "RANGE":
        low, high = argument
        return lambda c: any(low <= ord(x) <= high for v in (c, c.lower(), c.upper()) for x in v[:1])
    if operation == "CATEGORY":
        return _CATEGORIES[str(argument)]
    negated = bool(argument) and str(argument[0][0]) == "NEGATE"
    tests = [_test_of(str(op), value) for op, value in argument[negated:]]
    return lambda c: any(test(c) for test in tests) != negated


_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
    "CATEGORY_NOT_WORD": lambda c: not (c.isalnum() or c == "_"),
}


def _kind(character: str) -> int:
    return _IN_WORD if character.isalnum() or character == "_" else _NO_WORD


def _holds(wanted: str, before: int, after: int) -> bool:
    if wanted in ("AT_BEGINNING", "AT_BEGINNING_STRING", "AT_BEGINNING_LINE"):
        return before == _START
    if wanted in ("AT_END", "AT_END_STRING", "AT_END_LINE"):
        return after == _END
    edge = (before == _IN_WORD) != (after == _IN_WORD)
    return edge if wanted == "AT_BOUNDARY" else not edge
