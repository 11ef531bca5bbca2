"""Texts and documents from outside."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_rebalancer.texts import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.booleans())
def test_a_document_is_read_as_python_reads_it(value: object, as_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=as_ascii).encode("utf-8", "surrogatepass")
    try:
        text.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            parse_json(text)
        return
    assert repr(parse_json(text, str)) == repr(json.loads(text.decode()))


@pytest.mark.parametrize(
    "text",
    [
        *("18446744073709551616", "-9223372036854775809", "1e400", "-1e400", "-0", "-0.0", "1E5", "[NaN]", "-Infinity"),
        *("1e-400", "2.2250738585072011e-308", "1.7976931348623159e308", f"0.{'1' * 400}"),
        *('"\\ud83d\\ude00"', '{"a": 1, "a": 2}'),
    ],
)
def test_an_odd_figure_is_what_python_makes_of_it(text: str) -> None:
    assert repr(parse_json(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text", ["01", "1.", ".5", "[1,]", "\ufeff1", "9" * 5000, "1 2", '"\t"', '"\\x41"', "tru", "", '"a']
)
def test_what_python_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any
        parse_json(text.encode())


def test_lone_surrogates_become_question_marks() -> None:
    assert parse_json(b'{"a\\ud800": "\\udc00b"}') == {"a?": "?b"}
    assert math.isnan(parse_json(b'["\\ud800", NaN]')[1])
