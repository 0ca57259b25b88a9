"""Pieces of Markdown: tables, and docstrings as text of a page."""

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

SPECIAL = re.compile(r"([\\*_\[\]#|])")
ROLE = re.compile(r":\w+:(?=`)")
LIST = re.compile(r"^(\s*)([-+]) ", re.MULTILINE)
FORMULA = re.compile(r"[\^=|(*]")
WORDS = re.compile(r"\b(?:a|an|and|as|at|by|for|if|in|is|of|on|than|the|to|with|within)\b")


def prose(text: str) -> str:
    """Return a docstring's text as Markdown: what is not in backticks is taken literally."""
    text = ROLE.sub("", text).replace("``", "`")
    parts = re.split(r"(`[^`]*`)", text)
    shown = [f"`{part[1:-1].lstrip('~.')}`" if k % 2 else _literal(part) for k, part in enumerate(parts)]
    return "".join(shown)


def _literal(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def formula(text: str) -> str:
    """Return the first line of a term's docstring, with the formula that it begins with as code."""
    for end in re.finditer(r"(?=[:,;] |\. |\.?$)", text):
        head = text[: end.start()]
        if head.count("(") == head.count(")") and FORMULA.search(head) and not ("`" in head or WORDS.search(head)):
            return f"`{head}`{prose(text[end.start() :])}"
    return prose(text)


def boosted(factor: int) -> str:
    """Return the head of a page that the search lists before others."""
    return f"---\nsearch:\n  boost: {factor}\n---\n"


def paragraphs(doc: str) -> str:
    """Return a docstring as Markdown: its paragraphs, those that are indented as code, without Args and Attributes."""
    doc = re.split(r"^(?:Args|Attributes|Returns|Raises|Yields):$", inspect.cleandoc(doc), maxsplit=1, flags=re.M)[0]
    parts = [part for part in re.split(r"\n\s*\n", doc.strip()) if part]
    return "\n\n".join(part if part.startswith("    ") else LIST.sub(r"\1\\\2 ", prose(part)) for part in parts)


def described(cls: type) -> dict[str, str]:
    """Return the text about each name in the sections Attributes and Args of a class's docstring, and of its bases'."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, part = re.sub(r"^Args:$", "Attributes:", inspect.cleandoc(base.__doc__ or ""), flags=re.M).partition(
            "Attributes:\n"
        )
        for names, text in re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", part, flags=re.M):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def code(value: Any) -> str:
    """Return a value as the command line writes it, as code; empty for an empty one."""
    text = plain(value)
    return f"`{text}`" if text else ""


def plain(value: Any) -> str:
    """Return a value as the command line writes it."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{','.join(map(plain, value))}]"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table; one of a `kind` has that class, by which the style sheet finds it."""
    lines = [list(heads), ["---"] * len(heads), *(list(row) for row in rows)]
    text = "\n".join(f"| {' | '.join(cell.replace(chr(10), ' ') for cell in line)} |" for line in lines)
    return f'<div class="{kind}" markdown>\n\n{text}\n\n</div>\n' if kind else f"{text}\n"
