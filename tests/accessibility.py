"""WCAG 2.2 AA of what a browser shows: axe-core's rules in both themes, the width of a phone, the keyboard."""

import json
from importlib.metadata import distribution
from pathlib import Path

from tests.browser import Browser

# The package is wanted for axe-core alone: its own code drives another browser, and is never imported.
AXE = Path(str(distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js")))
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""The best practices hold axe-core's rules of landmarks and of the order of headings."""
OF_THEMES = ("color-contrast", "link-in-text-block")
"""The rules whose outcome depends on the theme."""

VIOLATIONS = """(async (runOnly) => {
  const { violations } = await axe.run({ runOnly, resultTypes: ["violations"], iframes: false, preload: false });
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id} (${help}): ${target}: ${failureSummary}`));
})"""

UNNAMED = """[...document.querySelectorAll("section, nav, dialog")]
  .filter((each) => each.checkVisibility() && !each.ariaLabel && !each.ariaLabelledByElements?.length)
  .map((each) => `no name: ${each.cloneNode().outerHTML}`)"""

TOO_WIDE = """new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const wide = [...document.querySelectorAll("html, dialog")].filter((each) => each.scrollWidth > each.clientWidth);
  const parts = [...document.querySelectorAll("body *")].filter((each) =>
    each.getBoundingClientRect().right > innerWidth && !each.closest(".scroll, .wide:not(dialog)"));
  done([...wide, ...wide.length ? parts : []].map((each) => each.cloneNode().outerHTML));
})))"""

STOPS = """[...document.querySelectorAll("a[href], button:enabled, summary, select, input, textarea, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && (!document.querySelector("dialog") || each.closest("dialog")))"""

ARRIVED = """(() => {
  const at = document.activeElement, { outlineStyle, outlineWidth } = getComputedStyle(at);
  return [stops.indexOf(at), outlineStyle !== "none" && parseFloat(outlineWidth) >= 2, at.cloneNode().outerHTML];
})()"""


def assert_accessible(chromium: Browser, width: int = 1200, height: int = 900) -> None:
    """Check the page of the project, alone or in the frame of Airflow's UI; then the window has the size given."""
    world = chromium.world("/pulsar_rebalancer/")
    if chromium.run("typeof axe", world) == "undefined":
        chromium.run(AXE.read_text(), world)
    found = set(chromium.run(UNNAMED, world))
    for theme, rules in (("dark", OF_THEMES), ("light", TAGS)):
        chromium.theme(theme)
        chromium.run(f"document.documentElement.className = '{theme}'")
        violations = chromium.run(f"{VIOLATIONS}({json.dumps(rules)})", world)
        found |= {f"{theme}: {violation}" for violation in violations}
    assert not found, "\n".join(sorted(found))
    if chromium.run("document.querySelector('iframe') === null"):
        # WCAG asks for 320 pixels; phones have 390.
        for narrow in (390, 320):
            chromium.size(narrow, height)
            too_wide = chromium.run(TOO_WIDE)
            assert too_wide == [], narrow
        chromium.size(width, height)


def assert_reached_with_tab(chromium: Browser) -> None:
    """Walk around the page, or the open dialog, once: all is reached and outlined, and nothing else."""
    stops = set(range(chromium.run(f"(window.stops = {STOPS}).length")))
    missing = set(stops)
    # A field for a date has several places; between the last and the first are the browser's own controls.
    for _ in range(2 * len(stops) + 8):
        chromium.press("Tab", 9)
        stop, outlined, element = chromium.run(ARRIVED)
        assert element.startswith(("<body", "<dialog")) or (stop in stops and outlined), element
        missing.discard(stop)
        if not missing:
            break
    assert not missing, chromium.run(f"{sorted(missing)}.map((stop) => stops[stop].outerHTML)")
