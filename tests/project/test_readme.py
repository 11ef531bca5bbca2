"""The README tells what the code does: its tables are made from the code."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_the_readme_are_those_of_the_code():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert load(ROOT / "scripts" / "reference.py").render(text) == text


def test_every_reason_has_a_meaning_and_blocks_say_what_to_do():
    reference = load(ROOT / "scripts" / "reference.py")
    for reason in reference.REASONS.values():
        assert reason.meaning.endswith("."), reason.code
        if reason.effect in ("block", "hold"):
            assert reason.action, reason.code
