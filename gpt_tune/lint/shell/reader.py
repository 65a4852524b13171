"""Owns reading a shell script into commands: lists, branches, loops, functions and substitutions.

It knows the grammar of sh and bash well enough to say which words a command has and under which conditions
it runs. It never fails and needs time in proportion to the text.
"""

from __future__ import annotations

import re

from gpt_tune.lint.shell.simple import REDIRECT, SimpleReader
from gpt_tune.lint.shell.tree import Assignment, Block, Command, Redirect, Tree, Word

_LIST_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;|&\n]")
_FUNCTION = re.compile(r"([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_ESAC = re.compile(r"esac\b")
# Commands deeper inside than this are said to stand in the outermost of their blocks only.
_DEEPEST_BLOCKS = 60
# Blocks of a text inside a text are numbered far from those around it.
_APART = 1_000_000
_OPENERS = {
    "if": "if",
    "while": "while",
    "until": "while",
    "for": "for",
    "select": "for",
    "case": "case",
    "{": "group",
}
_CLOSERS = {"fi": ("if", "else"), "done": ("while", "for"), "esac": ("case",), "}": ("group", "function")}


class Reader(SimpleReader):
    """Reads one text. line and offset: where the text starts in its file."""

    def __init__(self, text: str, line: int = 1, offset: int = 0, blocks: tuple[Block, ...] = ()) -> None:
        super().__init__(text, line, offset)
        self.lexer.read_substitution = self._substitution
        self.lexer.read_backquoted = self._backquoted
        self.blocks = list(blocks)
        self.numbers = 0
        self.before = ""
        self.condition = False
        self.function = ""

    def read(self) -> Tree:
        """The whole text."""
        while self.lexer.position < self.lexer.size:
            self._list()
            if self.lexer.position < self.lexer.size:
                self.lexer.advance(1)  # a stray ")"
        return self.tree

    # -- lists -----------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """Commands up to the end, or to a `)` that closes what the caller opened."""
        lexer, floor = self.lexer, len(self.blocks)
        while lexer.position < lexer.size:
            self._blanks()
            character = lexer.peek()
            if not character:
                return
            if character == ")":
                if not self._close_parenthesis(floor):
                    return
                continue
            match = _LIST_OPERATOR.match(lexer.text, lexer.position)
            if match is not None and not REDIRECT.match(lexer.text, lexer.position):
                self._operator(match.group())
            else:
                self._command()

    def _operator(self, operator: str) -> None:
        self.lexer.advance(len(operator))
        if operator == "\n":
            self._heredocs()
            self.line_has_code = False
        if operator in (";;", ";&", ";;&"):
            self._case_pattern()
            operator = ";"
        if operator == "\n" and self.before in ("&&", "||", "|"):
            return  # the list goes on on the next line
        self.before = "" if operator == "\n" else "|" if operator == "|&" else operator

    # -- commands --------------------------------------------------------------------------------------------

    def _command(self) -> None:
        """One simple command, or a word that opens or closes a compound one."""
        lexer = self.lexer
        self.line_has_code = True
        if lexer.peek() == "(":
            self._open_parenthesis()
            return
        function = _FUNCTION.match(lexer.text, lexer.position)
        if function is not None:
            lexer.advance(len(function.group()))
            self._name_function(function.group(1))
            return
        start_line = lexer.line
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        while True:
            self._blanks_in_command()
            if not self._take(words, assignments, redirects):
                break
            if len(words) == 1 and not assignments and not redirects and self._reserved(words[0]):
                return
        if words or assignments or redirects:
            self._emit(words, assignments, redirects, start_line)
        elif lexer.position < lexer.size:
            lexer.advance(1)

    def _emit(
        self, words: list[Word], assignments: list[Assignment], redirects: list[Redirect], line: int
    ) -> None:
        lexer = self.lexer
        after = _LIST_OPERATOR.match(lexer.text, lexer.position)
        self.tree.commands.append(
            Command(
                tuple(words), tuple(assignments), tuple(redirects), tuple(self.blocks[:_DEEPEST_BLOCKS]), line,
                lexer.line, self.before, after.group() if after and after.group() != "\n" else "", self.condition,
            )
        )  # fmt: skip
        self.before = ""

    # -- compound commands -----------------------------------------------------------------------------------

    def _reserved(self, word: Word) -> bool:
        """Act on a reserved word that stands where a command starts; False for any other word."""
        text = word.literal
        if text is None or any(p.quote for p in word.parts):
            return False
        if text in _OPENERS:
            self._open(text)
        elif text in _CLOSERS:
            self._close(_CLOSERS[text])
            self._trailing()
        elif text in ("then", "do"):
            self.condition = False
        elif text in ("else", "elif"):
            self._branch(text)
        elif text == "function":
            self._blanks_in_command()
            named = self.lexer.word()
            self._blanks_in_command()
            if self.lexer.text.startswith("()", self.lexer.position):
                self.lexer.advance(2)
            self._name_function(named.literal or "" if named else "")
        elif text not in ("!", "time", "coproc"):
            return False
        if text not in _CLOSERS and text != "!":
            self.before = ""
        return True

    def _push(self, kind: str, head: str = "", family: int = 0) -> None:
        self.numbers += 1
        self.blocks.append(Block(kind, self.numbers, family or self.numbers, self.lexer.line, head))

    def _open(self, text: str) -> None:
        lexer = self.lexer
        kind = _OPENERS[text]
        if kind == "group" and self.function:
            self._push("function", self.function)
            self.function = ""
        elif kind == "case":
            self._case_subject()
        elif kind == "for":
            self._loop_head()
        else:
            end = lexer.text.find("\n", lexer.position)
            line = lexer.text[lexer.position : end if end >= 0 else lexer.size]
            head = re.split(r";\s*(?:then|do)\b", line)[0].strip()[:400]
            self._push(kind, head)
            self.condition = kind in ("if", "while")

    def _branch(self, text: str) -> None:
        """`else` or `elif`: another branch of the same family."""
        family, head = 0, ""
        if self.blocks and self.blocks[-1].kind in ("if", "else"):
            last = self.blocks.pop()
            family, head = last.family, last.head
        if text == "elif":
            self._open("if")
            block = self.blocks.pop()
            self.blocks.append(Block("if", block.number, family or block.family, block.line, block.head))
        else:
            self._push("else", head, family)

    def _close(self, kinds: tuple[str, ...]) -> None:
        self.condition = False
        for i in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[i].kind in kinds:
                del self.blocks[i:]
                return
            if self.blocks[i].kind in ("substitution", "string"):
                return

    def _trailing(self) -> None:
        """Redirects and operators behind a compound command belong to it: kept as a command without words."""
        redirects: list[Redirect] = []
        line = self.lexer.line
        self._blanks_in_command()
        while (match := REDIRECT.match(self.lexer.text, self.lexer.position)) is not None:
            redirects.append(self._redirect(match))
            self._blanks_in_command()
        if redirects:
            self._emit([], [], redirects, line)

    def _name_function(self, name: str) -> None:
        self.function = name
        self.tree.functions.setdefault(name, self.lexer.line)

    def _loop_head(self) -> None:
        lexer = self.lexer
        self._blanks_in_command()
        if lexer.text.startswith("((", lexer.position):
            end = lexer.text.find("))", lexer.position)
            lexer.advance((end + 2 if end >= 0 else lexer.size) - lexer.position)
            self._push("for")
            return
        start = lexer.offset + lexer.position
        variable = lexer.word()
        name = variable.literal or "" if variable else ""
        self._push("for", name)
        self._blanks_in_command()
        if not lexer.text.startswith("in", lexer.position):
            return
        lexer.advance(2)
        words: list[Word] = []
        self._blanks_in_command()
        while (word := lexer.word()) is not None:
            words.append(word)
            self._blanks_in_command()
        # Kept as an assignment of the loop's variable, so that values can be looked up.
        assignment = Assignment(name, None, False, tuple(words), lexer.line, start, start)
        if name:
            self._emit([], [assignment], [], lexer.line)

    def _case_subject(self) -> None:
        lexer = self.lexer
        self._blanks_in_command()
        subject = lexer.word()
        self._push("case", subject.source if subject else "")
        self._skip_space()
        if lexer.text.startswith("in", lexer.position):
            lexer.advance(2)
        self._case_pattern()

    def _skip_space(self) -> None:
        while True:
            self._blanks()
            if self.lexer.peek() != "\n":
                return
            self.lexer.advance(1)
            self.line_has_code = False

    def _case_pattern(self) -> None:
        """A pattern up to its `)`: the next branch of the case."""
        lexer = self.lexer
        self._skip_space()
        if _ESAC.match(lexer.text, lexer.position) or lexer.position >= lexer.size:
            return
        if lexer.peek() == "(":
            lexer.advance(1)
        pieces: list[str] = []
        while lexer.position < lexer.size and lexer.peek() not in (")", "\n"):
            word = lexer.word()
            pieces.append(word.source if word else lexer.advance(1))
        lexer.advance(1)
        case = self._innermost_case()
        if case is not None:
            old = self.blocks[case]
            del self.blocks[case:]
            self._push("case", f"{old.head.partition(' = ')[0]} = {''.join(pieces).strip()}", old.family)
        self.before = ""

    def _innermost_case(self) -> int | None:
        """Where the `case` that this `;;` belongs to stands among the blocks."""
        for i in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[i].kind == "case":
                return i
            if self.blocks[i].kind == "substitution":
                return None
        return None

    def _open_parenthesis(self) -> None:
        lexer = self.lexer
        if lexer.text.startswith("((", lexer.position):
            end = lexer.text.find("))", lexer.position, lexer.position + 2000)
            if end >= 0:
                line = lexer.line
                self._emit([self._fixed_word(end + 2 - lexer.position)], [], [], line)
                return
        lexer.advance(1)
        kind, self.function = ("function", self.function) if self.function else ("subshell", "")
        self._push(kind, self.function)
        self.function, self.before = "", ""

    def _close_parenthesis(self, floor: int) -> bool:
        """Close a subshell opened since `floor`; False when the `)` belongs to a caller."""
        for i in range(len(self.blocks) - 1, floor - 1, -1):
            if self.blocks[i].kind in ("subshell", "function"):
                del self.blocks[i:]
                self.lexer.advance(1)
                self._trailing()
                return True
        return False

    # -- substitutions ---------------------------------------------------------------------------------------

    def _substitution(self) -> None:
        """The commands of `$( ... )`, up to its `)` which is left for the lexer."""
        outer = (self.before, self.condition, self.function, self.line_has_code)
        depth = len(self.blocks)
        self.before, self.condition, self.function = "", False, ""
        self._push("substitution")
        self._list()
        self.before, self.condition, self.function, self.line_has_code = outer
        del self.blocks[depth:]

    def _backquoted(self, inner: str, line: int, offset: int) -> None:
        self._push("substitution")
        reader = Reader(inner, line, offset, tuple(self.blocks[:_DEEPEST_BLOCKS]))
        reader.lexer.depth = self.lexer.depth + 1
        reader.numbers = (self.numbers + 1) * _APART
        self.tree.commands += reader.read().commands
        self.blocks.pop()


def read(text: str, line: int = 1, offset: int = 0) -> Tree:
    """A shell script as commands. line and offset: where it starts in its file."""
    return Reader(text, line, offset).read()
