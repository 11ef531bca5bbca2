"""The pages tell what the code does: their tables are made from it."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load(ROOT / "scripts" / "reference.py")


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_code(page):
    text = page.read_text(encoding="utf-8")
    assert reference.render(text) == text


def test_every_table_stands_on_one_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in reference.PAGES)
    assert sorted(re.findall(r"^<!-- (\w[\w ]*) -->$", text, flags=re.MULTILINE)) == sorted(reference.TABLES)
    assert sorted(re.findall(r"^<!-- /([\w ]+) -->$", text, flags=re.MULTILINE)) == sorted(reference.TABLES)


def test_every_reason_has_a_meaning_and_blocks_say_what_to_do():
    for reason in reference.REASONS.values():
        assert reason.meaning.endswith("."), reason.code
        if reason.effect in ("block", "hold"):
            assert reason.action, reason.code
