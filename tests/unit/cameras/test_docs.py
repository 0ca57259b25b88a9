"""The page's Python blocks run, in order, in one namespace."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "cameras.md"


@pytest.mark.long
def test_the_pages_code_runs():
    code = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code
    exec("\n".join(code), {})
