import xml.etree.ElementTree as ET

from scripts import reference
from scripts.pictures import drawn

from pulsar_rebalancer.reasons import Reason


def test_tables_and_types_are_those_of_the_code():
    stale = [file.name for file, text in reference.written().items() if file.read_text(encoding="utf-8") != text]
    assert stale == [], "run .venv/bin/python scripts/reference.py"


def test_every_reason_has_a_meaning_and_blocks_say_what_to_do():
    for reason in Reason:
        assert reason.meaning.endswith("."), reason
        if reason.effect in ("block", "hold"):
            assert reason.action, reason


def test_pictures_are_drawn():
    for file, picture in drawn().items():
        assert ET.fromstring(picture).tag.endswith("svg")
        assert file.exists(), "run .venv/bin/python -m scripts.pictures"
