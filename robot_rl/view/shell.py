"""The shell of the project's pages: head, facts, sections, tables and images. A page loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
"""The styles and scripts of the pages."""


def page(title: str, body: str, *, style: str = "", draws: bool = False) -> str:
    """Return a page.

    Args:
        title: of the page; it is escaped.
        body: its HTML.
        style: additional CSS.
        draws: the page has charts (`robot_rl.view.chart`): their script is at its end, the only one that may run.
    """
    policy, end = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'", ""
    if draws:
        script = _read("chart.js", "page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy, end = f"{policy}; script-src 'sha256-{digest}'", f"<script>{script}</script>\n"
    css = _read("theme.css", "document.css") + style
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="generator" content="robot-rl">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{css}</style>\n</head>\n<body>\n<main>\n{body}</main>\n{end}</body>\n</html>\n"
    )


def _read(*names: str) -> str:
    """Return files of STATIC as one, without indentation and lines of comments."""
    text = "".join((STATIC / name).read_text(encoding="utf-8") for name in names)
    return re.sub(r"^\s*(//.*\n\s*)*", "", text, flags=re.M)


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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells of HTML, of which the first of a row is its heading; "" without a row."""
    lines = [
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>' for first, *rest in rows
    ]
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f'<div class="scroll"><table>{top}<tbody>{"".join(lines)}</tbody></table></div>' if lines else ""


def far(text: str, is_far: bool) -> str:
    """Return a cell's text, highlighted if the value is far from its target."""
    return f'<span class="far">{text}</span>' if is_far else text


def image(picture: Any, alt: str, quality: int = 84) -> str:
    """Return a `PIL.Image.Image` as an <img> with the JPEG inside."""
    stream = io.BytesIO()
    picture.save(stream, format="JPEG", quality=quality)
    return f'<img src="data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}" alt="{escape(alt)}">'
