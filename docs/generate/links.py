"""Links of the pages in the checkout, rewritten for the site; files outside of docs/ that they lead to are taken in."""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs/"
TAKEN_IN = "repository/"
"""The folder of the site for files that are outside of docs/ in the checkout."""
SHOWN = {
    "envs/robot_rl_envs/entity/state.py": "reference/state.md",
    "envs/robot_rl_envs/mdp/__init__.py": "reference/terms/helpers.md",
}
"""Files of the checkout, and the generated page to which a link to each of them leads."""
DATA = (".gif", ".jpg", ".json", ".mp4", ".png", ".svg")
"""Endings of files that a browser shows; any other file becomes a page with its text."""
LANGUAGES = {".py": "python", ".txt": "text", ".h": "cpp", ".cpp": "cpp", ".sh": "bash", ".toml": "toml"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^(?! {4}).+$", re.MULTILINE)
NAMED = re.compile(r"(?<![`/\w])docs/([\w\\]+)\.md\b")
HEAD = re.compile(r"\A```(\w+) +(.+)$", re.MULTILINE)


def to_site(path: str) -> str:
    """Return where the site has a file of the checkout, as the path of a page's source or of a file."""
    if path in SHOWN:
        return SHOWN[path]
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    place = TAKEN_IN + path.lstrip(".")
    return place if path.endswith((".md", *DATA)) else f"{place}.md"


def outside_text(path: str) -> str:
    """Return the source of the page of a file outside of docs/, which is Markdown or code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    head = "---\nsearch:\n  exclude: true\n---\n"
    return f"{head}# `{path}`\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"


def find_outside(pages: Iterable[str]) -> set[str]:
    """Return the files outside of docs/ that pages lead to, and that those lead to which are Markdown themselves."""
    waiting, found = list(pages), set()
    while waiting:
        page = waiting.pop()
        for _, target in targets(page):
            path = resolve(page, target)
            if (ROOT / path).is_file() and not path.startswith(DOCS) and path not in {*found, *SHOWN}:
                found.add(path)
                waiting += [path] if path.endswith(".md") else []
    return found


def targets(page: str) -> list[tuple[str, str]]:
    """Return text and target of each link of a file to another."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return [(words, target) for words, target in LINK.findall(text) if is_path(target)]


def is_path(target: str) -> bool:
    """Return whether a link's target is a file, rather than an address or a place in the same page."""
    return not target.startswith("#") and "://" not in target and not target.startswith("mailto:")


def resolve(page: str, target: str) -> str:
    """Return the path in the checkout that a link of a page leads to, without its anchor."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))


def rewrite(page: str, text: str, warn: Callable[[str], None]) -> str:
    """Return the text of a page of the checkout as the site needs it.

    A link leads to the place of its file in the site; a link to a folder becomes its text. The attributes of a code
    block, which are for tests, become its title. `warn` gets a line about each link that leads nowhere.
    """
    here = posixpath.dirname(to_site(page))

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        if not is_path(target):
            return match[0]
        path, anchor = resolve(page, target), target.partition("#")[2]
        if not (ROOT / path).exists():
            warn(f"{page}: {target}: no such file")
        if not (ROOT / path).is_file():
            return words[1:-1]
        place = posixpath.relpath(to_site(path), here or ".")
        return f"{words}({place}{'#' + anchor if anchor else ''})"

    parts, end = [], 0
    for block in FENCE.finditer(text):
        parts += [LINK.sub(link, text[end : block.start()]), HEAD.sub(titled, block[0])]
        end = block.end()
    return "".join([*parts, LINK.sub(link, text[end:])])


def refer(page: str, text: str) -> str:
    """Return the text of a page from the code with links at the pages that its docstrings name, as docs/<name>.md."""
    here = posixpath.dirname(page)

    def link(match: re.Match[str]) -> str:
        name = match[1].replace("\\", "")
        return f"[{name}.md]({posixpath.relpath(f'{name}.md', here or '.')})"

    blocks = FENCE.split(text)
    code = [*FENCE.findall(text), ""]
    linked = (TEXT.sub(lambda line: NAMED.sub(link, line[0]), part) for part in blocks)
    return "".join(part + block for part, block in zip(linked, code, strict=True))


def titled(head: re.Match[str]) -> str:
    """Return the first line of a code block with its file as a title, instead of what tests do with it."""
    words = [word.partition("=") for word in shlex.split(head[2])]
    given = {key: value for key, _, value in words}
    title = given.get("file", "")
    if "append" in given:
        title = f"{given['append']}, at its end"
    elif "insert" in given:
        title = f"{given['insert']}, after {given['after']}"
    return f"```{head[1]}" + (f' title="{title}"' if title else "")
