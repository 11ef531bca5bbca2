import math
from html.parser import HTMLParser

import pytest
from tests.plugins.pulsar_rebalancer_airflow.validation.validation_sample import Sample

from pulsar_rebalancer_airflow.suites import validate, validation_page

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
    text = validation_page(run).read_bytes().decode()
    assert len(text) < 200_000
    return Seen(text)


def test_page_holds_only_text_in_plain_tables(page: Seen) -> None:
    assert page.tags.keys() == TAGS
    attributes = set().union(*page.tags.values())
    assert attributes == ATTRIBUTES
