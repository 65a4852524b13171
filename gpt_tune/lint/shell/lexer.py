"""Owns reading one shell word: quotes, expansions and what stands inside them, in one pass over the text.

It never fails: what is not closed ends with the file, as `bash -n` will say in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpt_tune.lint.shell.tree import Part, Word

_PLAIN = re.compile(r"[^\s\\'\"$`|&;()<>]+")
_PLAIN_IN_TEST = re.compile(r"[^\s\\'\"$`]+")
_QUOTED_PLAIN = re.compile(r"[^\\\"$`]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-]")
_BRACED = re.compile(r"([!#]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?!$-])(\[[^\]\n]{0,200}\])?")
_OPERATOR = re.compile(r":[-=?+]|[-=?+]|##?|%%?|//?|\^\^?|,,?|@|:")
_META = frozenset(" \t\n|&;()<>")
# Deeper nesting than any person writes is kept as plain text, so that hostile files cannot exhaust the stack.
_DEEPEST = 40
_LONGEST_ARITHMETIC = 2000
_FAILURES_ALLOWED = 20


class Lexer:
    """A position in a text. `line` counts from the first line of the file the text is part of."""

    def __init__(self, text: str, line: int = 1, offset: int = 0) -> None:
        self.text = text
        self.size = len(text)
        self.position = 0
        self.line = line
        self.offset = offset
        self.depth = 0
        self.arithmetic_failures = 0
        # Set by the reader: reads the commands of `$( ... )` up to its closing parenthesis.
        self.read_substitution: Callable[[], None] = self._skip_to_parenthesis
        self.read_backquoted: Callable[[str, int, int], None] = lambda text, line, offset: None

    def peek(self, ahead: int = 0) -> str:
        """The character `ahead` of the position, "" past the end."""
        at = self.position + ahead
        return self.text[at] if at < self.size else ""

    def advance(self, count: int) -> str:
        """Take so many characters, counting lines."""
        taken = self.text[self.position : self.position + count]
        self.position += len(taken)
        self.line += taken.count("\n")
        return taken

    def word(self, in_test: bool = False) -> Word | None:
        """The word at the position, or None when no word starts there."""
        start, line = self.position, self.line
        parts: list[Part] = []
        while self.position < self.size:
            character = self.text[self.position]
            if character in _META and not self._inside_word(character, in_test, start):
                break
            parts += self._piece(character, in_test)
        if self.position == start:
            return None
        source = self.text[start : self.position]
        return Word(tuple(parts), source, line, self.offset + start, self.offset + self.position)

    def _inside_word(self, character: str, in_test: bool, start: int) -> bool:
        if in_test:
            return character not in " \t\n"
        if character == "(" and self.position > start:
            return self.text[self.position - 1] in "?*+@!"
        return character in "<>" and self.peek(1) == "("

    def _piece(self, character: str, in_test: bool) -> list[Part]:
        line = self.line
        if character == "\\":
            taken = self.advance(2)
            return [] if taken == "\\\n" else [Part("text", taken[1:], "\\", line)]
        if character == "'":
            return [self._single()]
        if character == '"':
            self.advance(1)
            return self._double() or [Part("text", "", '"', line)]
        if character == "$":
            return [self._expansion("")]
        if character == "`":
            return [self._backquoted("")]
        if character in "<>" and self.peek(1) == "(":
            self.advance(2)
            return [self._substitution("")]
        if character == "(" and not in_test:
            return [Part("text", self._extended_pattern(), "", line)]
        match = (_PLAIN_IN_TEST if in_test else _PLAIN).match(self.text, self.position)
        return [Part("text", self.advance(len(match.group()) if match else 1), "", line)]

    def _extended_pattern(self) -> str:
        end = self.text.find(")", self.position, self.position + _LONGEST_ARITHMETIC)
        return self.advance(end - self.position + 1 if end >= 0 else 1)

    def _single(self) -> Part:
        line = self.line
        self.advance(1)
        end = self.text.find("'", self.position)
        inner = self.advance((end if end >= 0 else self.size) - self.position)
        self.advance(1)
        return Part("text", inner, "'", line)

    def _double(self, until: str = '"') -> list[Part]:
        """Parts up to the closing double quote, which is taken; until="" reads to the end of the text."""
        parts: list[Part] = []
        while self.position < self.size:
            character, line = self.text[self.position], self.line
            if character == until:
                self.advance(1)
                break
            if character == "\\":
                taken = self.advance(2)
                if taken != "\\\n":
                    text = taken[1:] if taken[1:] in tuple('$`"\\') else taken
                    parts.append(Part("text", text, '"', line))
            elif character == "$":
                parts.append(self._expansion('"'))
            elif character == "`":
                parts.append(self._backquoted('"'))
            elif character == '"':
                parts.append(Part("text", self.advance(1), '"', line))
            else:
                match = _QUOTED_PLAIN.match(self.text, self.position)
                parts.append(Part("text", self.advance(len(match.group()) if match else 1), '"', line))
        return parts

    def text_parts(self) -> tuple[Part, ...]:
        """The whole text read as if it stood in double quotes: a here-document."""
        return tuple(self._double(until=""))

    def _expansion(self, quote: str) -> Part:
        line = self.line
        if self.text.startswith("$((", self.position):
            inner = self._arithmetic()
            if inner is not None:
                return Part("arithmetic", inner, quote, line)
        following = self.peek(1)
        if following == "(":
            self.advance(2)
            return self._substitution(quote)
        if following == "{":
            return self._braced(quote)
        if following == "'" and not quote:
            self.advance(1)
            return self._ansi_quoted()
        if following == '"' and not quote:
            self.advance(1)
            return Part("text", "", quote, line)
        match = _NAME.match(self.text, self.position + 1)
        if match is None:
            return Part("text", self.advance(1), quote, line)
        self.advance(1 + len(match.group()))
        return Part("variable", match.group(), quote, line)

    def _ansi_quoted(self) -> Part:
        line, begin = self.line, self.position + 1
        self.advance(1)
        while self.position < self.size and self.text[self.position] != "'":
            self.advance(2 if self.text[self.position] == "\\" else 1)
        inner = self.text[begin : self.position]
        self.advance(1)
        return Part("text", inner, "'", line)

    def _arithmetic(self) -> str | None:
        """The source inside `$(( ))`, or None when it is a command substitution after all."""
        if self.arithmetic_failures >= _FAILURES_ALLOWED:
            return None
        depth, at = 0, self.position + 3
        stop = min(self.size, at + _LONGEST_ARITHMETIC)
        while at < stop:
            character = self.text[at]
            if character == "(":
                depth += 1
            elif character == ")":
                if depth == 0 and self.text.startswith("))", at):
                    inner = self.text[self.position + 3 : at]
                    self.advance(at + 2 - self.position)
                    return inner
                depth -= 1
                if depth < 0:
                    break
            at += 1
        self.arithmetic_failures += 1
        return None

    def _substitution(self, quote: str) -> Part:
        line, begin = self.line, self.position
        if self.depth >= _DEEPEST:
            return Part("text", "$(", quote, line)
        self.depth += 1
        self.read_substitution()
        self.depth -= 1
        inner = self.text[begin : self.position]
        if self.peek() == ")":
            self.advance(1)
        return Part("command", inner, quote, line)

    def _skip_to_parenthesis(self) -> None:
        end = self.text.find(")", self.position)
        self.advance((end if end >= 0 else self.size) - self.position)

    def _backquoted(self, quote: str) -> Part:
        line, begin = self.line, self.position + 1
        self.advance(1)
        while self.position < self.size and self.text[self.position] != "`":
            self.advance(2 if self.text[self.position] == "\\" else 1)
        inner = self.text[begin : self.position]
        self.advance(1)
        if self.depth < _DEEPEST:
            self.read_backquoted(inner, line, self.offset + begin)
        return Part("command", inner, quote, line)

    def _braced(self, quote: str) -> Part:
        """`${...}`: name, operator and what follows it."""
        line, begin = self.line, self.position
        match = _BRACED.match(self.text, self.position + 2)
        if match is None or self.depth >= _DEEPEST:
            return Part("text", self.advance(2), quote, line)
        self.advance(2 + len(match.group()))
        name, operator = match.group(2), match.group(1)
        argument: Word | None = None
        found = _OPERATOR.match(self.text, self.position)
        if found is not None and self.peek() != "}":
            operator = found.group()
            self.advance(len(operator))
            self.depth += 1
            argument = self._until_brace(quote)
            self.depth -= 1
        if match.group(3):
            operator = operator or match.group(3)
        if self.peek() == "}" or self.position == begin:
            self.advance(1)
        return Part("variable", name, quote, line, operator, argument)

    def _until_brace(self, quote: str) -> Word:
        start, line = self.position, self.line
        parts: list[Part] = []
        while self.position < self.size and self.text[self.position] != "}":
            character = self.text[self.position]
            if character == '"' and quote:
                # Quotes inside "${a:-"b"}" only switch; the text between them is what counts.
                self.advance(1)
            elif character in "\\'\"$`" and not (character == "'" and quote):
                parts += self._piece(character, in_test=True)
            else:
                begin = self.position
                while self.position < self.size and self.text[self.position] not in "}\\'\"$`":
                    self.position += 1
                if self.position == begin:
                    self.position += 1
                taken = self.text[begin : self.position]
                parts.append(Part("text", taken, quote, self.line))
                self.line += taken.count("\n")
        source = self.text[start : self.position]
        return Word(tuple(parts), source, line, self.offset + start, self.offset + self.position)
