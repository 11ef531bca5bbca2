from pulsar_rebalancer.reasons import Reason, reasons_text


def test_counts_are_told_in_words_the_largest_first() -> None:
    found = reasons_text({Reason.BUNDLE_EXCLUDED: 2, Reason.OVER_REMAINING: 1700, Reason.MODE_OFF: 1})

    assert found == "1,700 did not fit, 2 excluded, 1 (mode_off: The cluster is in mode off.)"
    assert reasons_text({}) == ""
