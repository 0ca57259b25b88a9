"""Patterns of sentences that are hard to read for readers from elsewhere, counted by folder (sentences.toml).

    python tests/unit/style/test_sentences.py      prints today's table

Write "if" or "when" for "where", the noun for "what ...", "is not a" or "without" for "is no" and "has no", "its own"
for "of its own", "omit" for "leave out", "resume" or "continue" for "go on", "also" for ", too".
"""

import io
import re
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("sentences.toml")
FOLDERS = ("robot_rl", "envs/robot_rl_envs", "tasks", "sim_assets", "deploy_jetson/robot_rl_deploy")
PATTERNS = re.compile(
    r"\b(where (a|an|the|it|that|there|this|these|no|none|one|they|he|she|its|their)\b"
    r"|where \w+ (is|are|was|were|has|have|does)\b"
    r"|(what|whatever) \w+|(is|are|has|have) no \w+|of (its|their|your|one's) own|(leave|left|leaves) \w* ?out"
    r"|(go|goes|went|going) on\b)|, too\b"
)


def texts(path):
    """The comments and strings of a file, with white space folded."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            yield " ".join(token.string.split())


def today():
    """The number of patterns in each folder of a package."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            part = path.relative_to(ROOT / folder).parts
            name = f"{folder}/{part[0] if len(part) > 1 else '*'}" if folder.count("robot_rl") else folder
            found[name] = found.get(name, 0) + sum(len(PATTERNS.findall(text)) for text in texts(path))
    return found


def test_no_folder_has_more_of_them():
    known, found = tomllib.loads(TABLE.read_text())["sentences"], today()
    assert sorted(found) == sorted(known)
    assert {name: count for name, count in found.items() if count > known[name]} == {}


if __name__ == "__main__":
    print("\n".join(f'"{name}" = {count}' for name, count in today().items()))
