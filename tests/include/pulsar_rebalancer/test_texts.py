import json

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
