"""The documentation site: every page is in its navigation, and a browser without a network shows all of it."""

import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser import Browser, browser
from tests.project.documentation import PAGES, ROOT

pytestmark = pytest.mark.system

SITE = ROOT / "build" / "docs"
WHOLE = "[...document.images].every((image) => image.complete && image.naturalWidth)"


def built(page: Path) -> Path:
    return (SITE / page.relative_to(ROOT)).with_suffix(".html")


SHOWN = sorted({*PAGES, ROOT / "CHANGELOG.md"})


def test_every_page_is_in_the_navigation_of_the_site_and_of_the_readme() -> None:
    captions = runpy.run_path(str(ROOT / "docs" / "conf.py"))["NAV"].values()
    named = [f"docs/{name}.md" if name[0] != "/" else f"{name[1:]}.md" for names in captions for name in names]
    assert sorted(ROOT / name for name in named) == [page for page in SHOWN if page != ROOT / "README.md"]
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Documentation\n")[2]
    assert re.findall(r"\]\(([^)]+)\)", section) == named


@pytest.fixture(scope="module")
def reader() -> Iterator[Browser]:
    """A browser that asks a proxy which is not there for all but files."""
    index = built(ROOT / "README.md")
    known = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    latest = max((ROOT / name).stat().st_mtime for name in known if (ROOT / name).is_file())
    if not index.exists() or index.stat().st_mtime < latest:
        done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    with browser() as opened:
        opened.send(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        yield opened


@pytest.fixture
def page(reader: Browser) -> Browser:
    """The browser, with no page: a test must not find what it waits for on the page of the one before."""
    reader.open("about:blank")
    reader.until("location.href === 'about:blank'")
    return reader


@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_without_a_network_shows_every_page(page: Browser, width: int) -> None:
    page.size(width, 900)
    for source in SHOWN:
        page.open(built(source).as_uri())
        page.until(
            f"document.querySelector('article h1') && location.pathname.endsWith('{built(source).name}') && {WHOLE}"
        )
        assert page.run("document.documentElement.scrollWidth") <= width, source
    assert page.problems == []
    assert {url for url in page.requests if not url.startswith(("file://", "data:"))} == set()
