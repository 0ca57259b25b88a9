"""What mkdocs calls while it builds the site: pages from the code, links for the site, and a list of pages."""

import html
import logging
import re
from pathlib import Path
from typing import Any

import api
import helpers
import links
import settings
import shipped
import terms
from mkdocs.structure.files import File, Files, InclusionLevel

log = logging.getLogger("mkdocs.hooks")
summaries: dict[str, str] = {}
"""The first sentence of each page, by the path of its source."""
MADE = (settings, terms, helpers, shipped, api)
REFERENCE = "<!-- reference -->"
"""A line of a page that the site replaces by links to the pages that are made from the code."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the code, and the files outside of docs/ that pages lead to."""
    made = {name: text for module in MADE for name, text in module.pages().items()}
    for name, text in made.items():
        files.append(_file(config, name, content=text))
    _reference_of(config).append({"Each task": [{name: shipped.place_of(name)} for name in shipped.list_tasks()]})
    pages = [links.DOCS + file.src_uri for file in files.documentation_pages() if file.src_uri not in made]
    for path in sorted(links.find_outside(pages)):
        place = links.to_site(path)
        if path.endswith(links.DATA):
            files.append(_file(config, place, abs_src_path=str(links.ROOT / path)))
        else:
            files.append(_file(config, place, content=_outside(path)))
    return files


def _file(config: Any, place: str, **source: Any) -> File:
    return File.generated(config, place, inclusion=InclusionLevel.NOT_IN_NAV, **source)


def _outside(path: str) -> str:
    text = links.outside_text(path)
    return links.rewrite(path, text, log.warning) if path.endswith(".md") else text


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the links of a page of docs/, and note the first sentence of any page."""
    if page.file.generated_by is None:
        markdown = links.rewrite(links.DOCS + page.file.src_uri, markdown, log.warning)
    elif not page.file.src_uri.startswith(links.TAKEN_IN):
        markdown = links.refer(page.file.src_uri, markdown)
    summaries[page.file.src_uri] = first_sentence(markdown)
    page.meta.setdefault("description", summaries[page.file.src_uri])
    return markdown.replace(REFERENCE, _reference(config))


def _reference_of(config: Any) -> list[dict[str, Any]]:
    """Return the entries of the navigation's part about the code."""
    (entries,) = (item["Reference"] for item in config.nav if "Reference" in item)
    return entries


def _reference(config: Any) -> str:
    """Return links to the pages that are made from the code, as the navigation lists them."""
    found = [
        (name, place) for entry in _reference_of(config) for name, place in entry.items() if isinstance(place, str)
    ]
    return ", ".join(f"[{name}]({place})" for name, place in found)


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's text, without marks."""
    for part in re.split(r"\n\s*\n", links.FENCE.sub("", markdown)):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(part.split())).replace("`", "").replace("\\", "")
        text = html.unescape(text)
        if text and text[0] not in "#|!<:?-":
            return re.split(r"(?<=[.!?])\s(?=[A-Z])", text)[0].replace("*", "").rstrip(":")
    return ""


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Show the roles of docstrings, such as :class:, as plain code."""
    return re.sub(r":(?:class|func|mod|data|attr|meth):(?=<code>)", "", html)


def on_post_build(config: Any) -> None:
    """Write llms.txt: the pages of the navigation, a line each."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    lines += _listed(config.nav, 2)
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _listed(nav: Any, depth: int) -> list[str]:
    """Return the lines of a part of the navigation: its pages, then its sections."""
    entries = [entry for item in nav for entry in item.items()]
    pages = [(name, place) for name, place in entries if isinstance(place, str)]
    lines = [f"- [{name}]({_url(place)}): {summaries[place]}".removesuffix(": ") for name, place in pages]
    for name, inside in entries:
        if not isinstance(inside, str):
            lines += ["", f"{'#' * depth} {name}", "", *_listed(inside, depth + 1)]
    return lines


def _url(place: str) -> str:
    return re.sub(r"README\.md$", "index.md", place).removesuffix(".md") + ".html"
