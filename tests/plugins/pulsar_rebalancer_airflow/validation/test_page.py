"""The page of a validation result: whole without the network, and harmless whatever brokers are called."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from tests.plugins.pulsar_rebalancer_airflow.validation.validation_sample import BROKERS, Sample

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_airflow.validation import findings as page_module
from pulsar_rebalancer_airflow.validation.suites import validate

if TYPE_CHECKING:
    from pathlib import Path

MARKUP = "acme/\"'><script src=//evil.example/x.js>alert(1)</script>/0x00000000_0x10000000"
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "dl", "dt", "dd", "ul", "li"}
TAGS |= {"main", "div", "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "tabindex", "role", "aria-label"}


class Seen(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: dict[str, set[str]] = {}
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, set()).update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    sample = Sample()
    sample.brokers[0] |= {"cpu_usage": math.nan}
    sample.brokers[1] |= {"report_age_seconds": 2000.0}
    sample.brokers[2] |= {"report_age_seconds": 9000.0}
    sample.cluster[0] |= {"builtin_shedding": True, "policies_readable": False, "policies_problem": "<b>no</b>"}
    sample.bundles += [{**sample.bundles[0], "bundle": f"{MARKUP}{n}"} for n in range(500)]
    run = sample.write(tmp_path_factory.mktemp("page"))
    validate(run)
    text = page_module.page_of(run).read_bytes().decode()
    assert len(text) < 200_000
    return Seen(text)


def test_nothing_but_text_in_plain_tables(page: Seen) -> None:
    assert page.tags.keys() == TAGS
    attributes = set().union(*page.tags.values())
    assert attributes == ATTRIBUTES


def test_tells_reasons_worst_offenders_and_what_to_do(page: Seen) -> None:
    stale = page.texts.index("report_stale")
    named = f"{BROKERS[2]} report_age_seconds 9000; {BROKERS[1]} report_age_seconds 2000"
    assert [text for text in page.texts[stale:] if text][1:3] == ["2", named]
    for code in ("too_few_brokers", "builtin_shedding_on", "policy_unreadable", "not_a_number", "bad_bundle_name"):
        assert code in page.texts
        assert Reason(code).action in page.texts


def test_has_the_words_of_great_expectations_for_every_expectation(page: Seen) -> None:
    assert "Table bundles: 19 of 20 expectations met" in page.texts
    assert any(
        text.startswith("cpu_usage values must never be null. 1 unexpected values found.") for text in page.texts
    )


def test_names_are_shown_as_they_are_and_not_all_of_them(page: Seen) -> None:
    shown = {f"{MARKUP}{n}" for n in range(500)} & set(page.texts)
    assert 100 < len(shown) <= page_module.SHOWN_FINDINGS


def test_a_page_that_cannot_be_written_changes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(page_module, "_page", broken)
    run = Sample().write(tmp_path)

    assert validate(run).findings == ()
    assert (run / "validation.json").exists()
    assert not page_module.page_of(run).exists()
