"""The site in a real browser: no page fails or overflows, and its search works by keyboard, also from files."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import lacking

ROOT = Path(__file__).parents[3]
WIDTHS = (390, 1280, 1920)
SCHEMES = {"light": "default", "dark": "slate"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    if importlib.util.find_spec("mkdocs") is None:
        lacking("no mkdocs (the extra docs)")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def visit(page, site):
    """visit(file): opens a page from the folder; in the end nothing may have failed or been fetched from elsewhere."""

    def go(name):
        page.call("Page.navigate", url=(site / name).as_uri())
        loaded = f"document.readyState === 'complete' && location.pathname.endsWith('/{name}')"
        page.wait(loaded, meanwhile=wait_briefly)
        return page

    yield go
    assert page.failures() == []
    urls = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:", "about:", "blob:"))] == []


def wait_briefly(_):
    time.sleep(0.02)


def press(page, key, text=""):
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")


@pytest.mark.long
def test_no_page_is_wider_than_the_screen(visit, site):
    # A server shows 404.html at any address, so its links begin with /. Pages in a folder of reference/ are alike.
    names = sorted(path.relative_to(site).as_posix() for path in (*site.glob("*.html"), *site.glob("reference/*.html")))
    names.remove("404.html")
    assert len(names) > 50
    for name in (*names, "reference/terms/rewards.html", "reference/tasks/go2_flat.html", "reference/api/task.html"):
        page = visit(name)
        for width in WIDTHS:
            page.resize(width)
            page.wait(f"document.documentElement.scrollWidth <= {width}", 5, meanwhile=wait_briefly)


@pytest.mark.long
def test_colors_follow_the_system(visit):
    for scheme, name in SCHEMES.items():
        page = visit("index.html")
        page.prefer(scheme)
        page.wait(f"document.body.dataset.mdColorScheme === '{name}'")


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pages_can_be_read_by_everyone(visit, scheme):
    for name in ("index.html", "python.html", "troubleshooting.html", "learner.html", "reference/learners.html"):
        page = visit(name)
        page.prefer(scheme)
        page.wait(f"document.body.dataset.mdColorScheme === '{SCHEMES[scheme]}'")
        for width in WIDTHS:
            page.resize(width)
            assert page.violations() == [], (name, width)


@pytest.mark.long
@pytest.mark.parametrize("key", ["s", "/"])
def test_a_key_opens_the_search_and_a_setting_is_found(visit, key):
    page = visit("index.html")
    page.wait("!!document.querySelector('[data-md-component=search] input')")
    press(page, key, key)
    page.wait("document.activeElement.matches('.md-search__input')")
    page.call("Input.insertText", text="keep_checkpoints")
    press(page, "Shift")
    page.wait("!!document.querySelector('.md-search-result__item')")
    assert page.js("document.querySelector('.md-search-result__link').href").count("reference/learners.html")


@pytest.mark.long
def test_tab_reaches_the_content_and_the_search(visit):
    page = visit("install.html")
    reached = []
    for _ in range(40):
        press(page, "Tab")
        reached.append(page.js("document.activeElement.className"))
    assert reached[0].startswith("md-skip")
    assert any("md-search" in name for name in reached)


@pytest.mark.long
def test_the_list_of_pages_for_machines_names_files_of_the_site(site):
    lines = [line for line in (site / "llms.txt").read_text().splitlines() if line.startswith("- [")]
    assert len(lines) > 60
    for line in lines:
        assert (site / line.partition("](")[2].partition(")")[0]).is_file(), line
