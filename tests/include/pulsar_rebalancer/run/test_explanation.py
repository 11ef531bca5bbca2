from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.findings import explain_validation
from pulsar_rebalancer.run.request import Finding, Validation


def findings(code: str, count: int, **more: str) -> list[Finding]:
    return [Finding(reason=code, subject=f"b-{n}:8080", **more) for n in range(count)]


def test_the_gravest_effect_and_then_the_most_frequent_come_first() -> None:
    found = [*findings("doubtful_limit", 9), *findings("bad_report_time", 1), *findings("bad_value", 2)]
    found += findings("builtin_shedding_on", 1) + findings("too_few_brokers", 1)

    told = explain_validation(Validation(findings=tuple(found))).reasons

    assert [(t.reason, t.count) for t in told] == [
        ("too_few_brokers", 1),
        ("builtin_shedding_on", 1),
        ("bad_value", 2),
        ("bad_report_time", 1),
        ("doubtful_limit", 9),
    ]


def test_three_of_each_are_named_and_what_lies_behind_is_told() -> None:
    validation = Validation(findings=tuple(findings("report_missing", 5, detail="error timeout", cause="timeout")))

    (line,) = explain_validation(validation).text().splitlines()

    assert "x5 (b-0:8080 error timeout; b-1:8080 error timeout; b-2:8080 error timeout)" in line
    assert line.endswith(f"timeout: {Reason('timeout').action}")
