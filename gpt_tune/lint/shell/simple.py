"""Owns reading one simple command: its words, assignments, redirects, here-documents and comments."""

from __future__ import annotations

import re

from gpt_tune.lint.shell.lexer import Lexer
from gpt_tune.lint.shell.tree import Assignment, Comment, Heredoc, Part, Redirect, Tree, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\n]*\])?(\+?)=")
REDIRECT = re.compile(r"([0-9]*|\{[A-Za-z_]\w*\})(&>>|&>|<<<|<<-|<<|>>|>&|<&|<>|>\||>|<)")
_END_OF_TEST = re.compile(r"\]\](?=[\s;&|)]|$)")
DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})


class SimpleReader:
    """Reads what simple commands are made of."""

    def __init__(self, text: str, line: int = 1, offset: int = 0) -> None:
        self.lexer = Lexer(text, line, offset)
        self.tree = Tree()
        self.pending: list[Heredoc] = []
        self.line_has_code = False

    def _blanks(self) -> None:
        """Skip spaces and comments, keeping the comments."""
        lexer = self.lexer
        while True:
            character = lexer.peek()
            if character in (" ", "\t", "\r") and character:
                lexer.advance(1)
            elif character == "\\" and lexer.peek(1) == "\n":
                lexer.advance(2)
            elif character == "#":
                end = lexer.text.find("\n", lexer.position)
                taken = lexer.advance((end if end >= 0 else lexer.size) - lexer.position)
                self.tree.comments.append(Comment(taken[1:], lexer.line, not self.line_has_code))
            else:
                return

    def _heredocs(self) -> None:
        """Read the bodies that the line before announced."""
        lexer = self.lexer
        for heredoc in self.pending:
            heredoc.line, heredoc.start = lexer.line, lexer.offset + lexer.position
            lines: list[str] = []
            while lexer.position < lexer.size:
                end = lexer.text.find("\n", lexer.position)
                raw = lexer.advance((end + 1 if end >= 0 else lexer.size) - lexer.position)
                body = raw.lstrip("\t") if heredoc.strip_tabs else raw
                if body.rstrip("\n") == heredoc.delimiter:
                    break
                lines.append(body)
            heredoc.text = "".join(lines)
            if not heredoc.quoted:
                heredoc.parts = Lexer(heredoc.text, heredoc.line).text_parts()
        self.pending = []

    def _blanks_in_command(self) -> None:
        lexer = self.lexer
        while (lexer.peek() in (" ", "\t", "\r") and lexer.peek()) or lexer.text.startswith(
            "\\\n", lexer.position
        ):
            lexer.advance(2 if lexer.peek() == "\\" else 1)

    def _take(self, words: list[Word], assignments: list[Assignment], redirects: list[Redirect]) -> bool:
        """The next word, assignment or redirect of a command; False at its end."""
        lexer = self.lexer
        redirect = REDIRECT.match(lexer.text, lexer.position)
        if redirect is not None and lexer.text[redirect.end() : redirect.end() + 1] != "(":
            redirects.append(self._redirect(redirect))
            return True
        declares = bool(words) and words[0].literal in DECLARATIONS
        if not words or declares:
            match = _ASSIGNMENT.match(lexer.text, lexer.position)
            if match is not None:
                assignments.append(self._assignment(match))
                return True
        if lexer.peek() == "#":
            return False
        word = lexer.word()
        if word is None:
            return False
        words.append(word)
        if len(words) == 1 and word.literal == "[[":
            self._test(words)
        return True

    def _assignment(self, match: re.Match[str]) -> Assignment:
        lexer = self.lexer
        line, start = lexer.line, lexer.position
        lexer.advance(len(match.group()))
        items: tuple[Word, ...] | None = None
        value: Word | None = None
        if lexer.peek() == "(":
            lexer.advance(1)
            items = tuple(self._array())
        else:
            value = lexer.word()
        end = lexer.position
        return Assignment(
            match.group(1),
            value,
            match.group(3) == "+",
            items,
            line,
            lexer.offset + start,
            lexer.offset + end,
        )

    def _array(self) -> list[Word]:
        """Words up to `)`, over lines and comments."""
        lexer, items = self.lexer, []
        while lexer.position < lexer.size:
            self._blanks()
            character = lexer.peek()
            if character == ")":
                lexer.advance(1)
                break
            word = lexer.word()
            if word is not None:
                items.append(word)
            elif character:
                lexer.advance(1)
        return items

    def _redirect(self, match: re.Match[str]) -> Redirect:
        lexer = self.lexer
        lexer.advance(len(match.group()))
        operator = match.group(2)
        self._blanks_in_command()
        target = lexer.word()
        if operator not in ("<<", "<<-") or target is None:
            return Redirect(operator, target)
        quoted = any(p.quote for p in target.parts)
        delimiter = "".join(p.text for p in target.parts)
        heredoc = Heredoc(delimiter, quoted, operator == "<<-")
        self.pending.append(heredoc)
        return Redirect(operator, None, heredoc)

    def _test(self, words: list[Word]) -> None:
        """Words of `[[ ... ]]`, where operators are plain text."""
        lexer = self.lexer
        while lexer.position < lexer.size:
            while lexer.peek() in (" ", "\t", "\n", "\r") and lexer.peek():
                lexer.advance(1)
            if _END_OF_TEST.match(lexer.text, lexer.position):
                words.append(self._fixed_word(2))
                return
            word = lexer.word(in_test=True)
            if word is None:
                return
            words.append(word)

    def _fixed_word(self, size: int) -> Word:
        """So many characters as one word, whatever they are."""
        lexer = self.lexer
        start, line = lexer.offset + lexer.position, lexer.line
        source = lexer.advance(size)
        return Word((Part("text", source, "", line),), source, line, start, start + len(source))
