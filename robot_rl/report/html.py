"""The head, facts and sections of the project's pages. A page loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"


def read_template(name: str) -> str:
    """Return a file of TEMPLATES."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def head(title: str, *, allowed: str = "", style: str = "") -> str:
    """Return the beginning of a page up to the body.

    Args:
        title: of the page; it is escaped.
        allowed: additions to its Content-Security-Policy, such as "script-src 'sha256-...'".
        style: additional CSS.
    """
    policy = "; ".join(filter(None, ("default-src 'none'; img-src data:", "style-src 'unsafe-inline'", allowed)))
    css = "".join(read_template(name) for name in ("colours.css", "report.css")) + style
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="generator" content="robot-rl">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{css}</style>\n</head>\n<body>\n"
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of labels and values, which are escaped."""
    items = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in rows)
    return f'<dl class="facts">{items}</dl>'


def section(title: str, text: str, body: str, key: str = "") -> str:
    """Return a section with a heading, a sentence, which are escaped, a body of HTML and an id; "" without a body."""
    if not body:
        return ""
    name = f' id="{key}"' if key else ""
    heading = f'<div class="head"><h2>{escape(title)}</h2><p>{escape(text)}</p></div>'
    return f"<section{name}>{heading}{body}</section>\n"
