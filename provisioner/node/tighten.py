"""Fewer letters for the same program: no comment, space, parenthesis or line end that no token needs, since user data is 16 KB.

What is left out is left out only where the parser reads the same program without it.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import pairwise

from provisioner.errors import InternalBug

_COMPOUND = frozenset(("@", "if", "for", "while", "try", "else", "elif", "except", "finally", "with", "def", "class"))
"""First words of lines that others belong to, or that belong to such a line."""
_COMMENT = re.compile(r"(^|\s+)# [^'\"]*$")
_ONLY_IF = re.compile(r"\s# if (\S+)$")
_BLOCK = re.compile(r"^# if (\S+)\n(.*?)^# end$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"\w]")
_NEWER_BEFORE = ("except", "[", "{")
"""Python 3.9 wants parentheses behind these that later ones do without, as around ``:=``."""
_FSTRING = (getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1))
"""Python 3.12 and later tell the parts of such a text apart."""


def tight_program(source: str) -> str:
    """A program of Python in fewer letters, one space a level.

    Args:
        source: as ``ast.unparse`` writes it: one statement a line, no comments.

    Raises:
        InternalBug: it would be another program.
    """
    lines = [(depth, _line(_without_parentheses(words))) for depth, words in _lines(source)]
    text = "".join(f"{' ' * depth}{line}\n" for depth, line in _joined(lines))
    if ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)):
        raise InternalBug("a program in fewer letters would be another program")
    return text


def tight_script(source: str, needs: AbstractSet[str] = frozenset()) -> str:
    """A script of bash without comments and indentation; texts of several lines are not for it.

    Args:
        source: the script; a line that ends in ``# if WORD`` is only there for who needs that, and so are the lines between one
            that is nothing else and ``# end``.
        needs: those words.

    Raises:
        InternalBug: it has a here-document, whose indentation is its own.
    """
    if _HERE_DOCUMENT.search(source):
        raise InternalBug("a script with a here-document cannot be packed")
    wanted = _BLOCK.sub(lambda block: block[2] if block[1] in needs else "", source)
    head, *lines = wanted.splitlines()
    lines = [line for line in lines if (only := _ONLY_IF.search(line)) is None or only[1] in needs]
    return "\n".join([head, *filter(None, (_COMMENT.sub("", line).strip() for line in lines))]) + "\n"


def _lines(source: str) -> Iterator[tuple[int, list[str]]]:
    """Depth and tokens of each line; a formatted text is one token."""
    rows = source.splitlines()
    depth = 0
    words: list[str] = []
    starts: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.NEWLINE:
            yield depth, words
            words = []
        elif token.type == _FSTRING[0]:
            starts.append(token.start)
        elif token.type == _FSTRING[1]:
            row, left = starts.pop()
            words += [] if starts else [rows[row - 1][left : token.end[1]]]
        elif token.string.strip() and not starts:
            words.append(token.string)


def _line(words: list[str]) -> str:
    """Tokens as a line: a space where two words would be one, or two texts another."""
    return words[0] + "".join((" " if _is_apart(*pair) else "") + pair[1] for pair in pairwise(words))


def _is_apart(left: str, right: str) -> bool:
    is_text = left[-1] in "'\""
    return right[0] in "'\"" if is_text else (left[-1].isalnum() or left[-1] == "_") and _is_word(right)


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _without_parentheses(words: list[str]) -> list[str]:
    meaning, at = None, 0
    while (pair := next((pair for pair in _groups(words) if pair[0] >= at), None)) is not None:
        left, right = pair
        bare = [*words[:left], *words[left + 1 : right], *words[right + 1 :]]
        meaning = meaning or _meaning(words)
        at = left
        if _meaning(bare) == meaning:
            words = bare
        else:
            at += 1
    return words


def _groups(words: list[str]) -> list[tuple[int, int]]:
    """Pairs of parentheses that may only group; those of calls and definitions do not."""
    opened: list[int] = []
    pairs = []
    for at, word in enumerate(words):
        if word == "(":
            opened.append(at)
        elif word == ")":
            left = opened.pop()
            before = words[left - 1] if left else ""
            grammar = before in _NEWER_BEFORE or ":=" in words[left:at]
            if not grammar and (not before or keyword.iskeyword(before) or not (_is_word(before) or before in ")]")):
                pairs.append((left, at))
    return sorted(pairs)


def _meaning(words: list[str]) -> str | None:
    """What the parser reads from one line, whatever belongs to it; ``None`` for one that is none."""
    text = _line(["if", *words[1:]] if words[0] == "elif" else words)
    text = f"try:pass\n{text}" if words[0] in ("except", "finally") else text
    text = f"if x:pass\n{text}" if words[0] == "else" else text
    text += "\ndef f():pass" if words[0] == "@" else "pass" if words[-1] == ":" else ""
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return None


def _joined(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Plain statements that follow each other on one line, behind what they belong to where they are all of it."""
    at = 0
    while at < len(lines):
        depth, line = lines[at]
        at += 1
        heads = _is_compound(line) and line.endswith(":")
        end = at
        while end < len(lines) and (lines[end][0] > depth if heads else lines[end][0] == depth):
            if _is_compound(lines[end][1]):
                end = at if heads else end
                break
            end += 1
        if heads or not _is_compound(line):
            line = (line if heads else f"{line};") + ";".join(text for _, text in lines[at:end]) if end > at else line
            at = end
        yield depth, line


def _is_compound(line: str) -> bool:
    return line[0] == "@" or re.split(r"\W", line, maxsplit=1)[0] in _COMPOUND
