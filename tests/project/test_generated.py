"""Tables and pictures of the documents, and the types of the page, are those that the code gives."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scripts import reference
from scripts.pictures import drawn

from pulsar_rebalancer.reasons import Reason

ROOT = Path(__file__).resolve().parents[2]


written = reference.written()
pictures = drawn()


@pytest.mark.parametrize("file", written, ids=lambda file: file.name)
def test_tables_and_types_are_those_of_the_code(file):
    assert file.read_text(encoding="utf-8") == written[file], "run .venv/bin/python scripts/reference.py"


def test_every_reason_has_a_meaning_and_blocks_say_what_to_do():
    for reason in Reason:
        assert reason.meaning.endswith("."), reason
        if reason.effect in ("block", "hold"):
            assert reason.action, reason


@pytest.mark.parametrize("file", pictures, ids=lambda file: file.name)
def test_pictures_are_those_of_the_code(file):
    ET.fromstring(pictures[file])
    assert file.read_text(encoding="utf-8") == pictures[file], "run .venv/bin/python -m scripts.pictures"
