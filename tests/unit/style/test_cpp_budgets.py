"""The budgets of a module, for the C++ of the robot binary: lines of a file and a function, parameters, columns."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path for suffix in ("*.h", "*.cpp") for path in (ROOT / "deploy_jetson" / "runtime" / "src").glob(suffix)
)
MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS, MAX_COLUMNS = 400, 60, 8, 120

# A definition that begins a line outside of functions, or within a class, and opens its body at the end of a line.
BEGIN = re.compile(
    r"^(?P<indent>(?:  )?)(?=[\w~\[:])(?!namespace|struct|class|enum|union|extern|else|if|for|while|do\b)"
)
WORDS = re.compile(r"\b(struct|class|enum|union|namespace)\b[^()]*\{$")


def functions(text):
    """Of each function in a well-indented file: the line it begins in, how many it has, and its signature."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        match = BEGIN.match(lines[at])
        head = at
        while match and head < len(lines) and not lines[head].rstrip().endswith(("{", "}", ";")):
            head += 1
        signature = " ".join(lines[at : head + 1])
        if not match or head >= len(lines) or not lines[head].endswith("{") or "(" not in signature:
            at += 1
            continue
        if WORDS.search(signature):
            at += 1
            continue
        end = head + 1
        while end < len(lines) and not lines[end].startswith(match["indent"] + "}"):
            end += 1
        yield at + 1, end - at + 1, signature
        at = end + 1


def parameters(signature):
    """How many parameters stand in the first brackets of a signature."""
    depth, count, text = 0, 0, ""
    for sign in signature[signature.index("(") + 1 :]:
        if sign == ")" and depth == 0:
            break
        depth += (sign in "(<[{") - (sign in ")>]}")
        count += sign == "," and depth == 0
        text += sign
    return count + bool(text.strip())


def over_budget(text, name):
    """What breaks a budget in a file, one line each."""
    lines = text.splitlines()
    found = [f"{name}: {len(lines)} lines, at most {MAX_FILE}"] if len(lines) > MAX_FILE else []
    found += [f"{name}:{i + 1}: {len(line)} columns" for i, line in enumerate(lines) if len(line) > MAX_COLUMNS]
    for line, length, signature in functions(text):
        if length > MAX_FUNCTION:
            found.append(f"{name}:{line}: {length} lines, at most {MAX_FUNCTION}")
        if parameters(signature) > MAX_PARAMETERS:
            found.append(f"{name}:{line}: {parameters(signature)} parameters, at most {MAX_PARAMETERS}")
    return found


def test_files_keep_the_budgets():
    assert [line for path in FILES for line in over_budget(path.read_text(), path.name)] == []


def test_files_have_no_tabs_and_end_with_a_line():
    texts = {path.name: path.read_text() for path in FILES}
    assert [name for name, text in texts.items() if "\t" in text or not text.endswith("\n")] == []


def test_every_header_describes_itself():
    for path in FILES:
        if path.suffix == ".h":
            assert path.read_text().startswith("// "), path.name


def test_the_rules_see_what_breaks_them():
    body = "".join(f"  int x{i} = 0;\n" for i in range(60))
    text = (
        f"namespace a {{\nint f(int a, std::pair<int, int> b) {{\n{body}}}\n\nvoid g() {{\n  if (true) {{\n  }}\n}}\n"
    )
    assert [(line, length, parameters(head)) for line, length, head in functions(text)] == [(2, 62, 2), (65, 4, 0)]
    assert over_budget(text, "m") == ["m:2: 62 lines, at most 60"]
    assert over_budget("void f(int a, int b, int c, int d, int e,\n       int g, int h, int i, int j) {\n}\n", "m") == [
        "m:1: 9 parameters, at most 8"
    ]
    assert over_budget("int a;\n" * 401, "m") == ["m: 401 lines, at most 400"]
    assert over_budget("//" + "x" * 119 + "\n", "m") == ["m:1: 121 columns"]
    method = "class A {\n public:\n  int f() const {\n" + "    int x;\n" * 60 + "  }\n};\n"
    assert over_budget(method, "m") == ["m:3: 62 lines, at most 60"]
