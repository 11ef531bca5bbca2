from datetime import UTC, datetime

import pytest
from tests.airflow_runs import bundle, make_run, move_row

from pulsar_rebalancer.carry_out.gate import approval_request, quoted, second_person_refusal
from pulsar_rebalancer.run.plan import Actions, Split, Summary, read_moves
from pulsar_rebalancer.run.tables import BUNDLES, table
from pulsar_rebalancer.storage.documents import ClusterStorage

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("requested_by", "person", "expected"),
    [
        ([], ["7", "bob"], None),
        (["ada"], ["7", "bob"], None),
        (["ada", "bob"], ["7", "bob"], "same_person"),
        (["7"], ["7", "bob"], "same_person"),
        (["ada", ""], ["7", "bob"], "no_user"),
        (["ada"], ["", ""], "no_user"),
        ([], [], "no_user"),
    ],
)
def test_a_second_person_has_another_name_and_another_id(requested_by, person, expected):
    refusal = second_person_refusal(requested_by, person)
    assert (refusal.reason if refusal else None) == expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("t/<script>alert(1)</script>", "` t/<script>alert(1)</script> `"),
        ("[x](http://evil)", "` [x](http://evil) `"),
        ("a`b``c", "``` a`b``c ```"),
        ("`", "`` ` ``"),
        ("one\n# two", "` one # two `"),
        ("x" * 501, f"` {'x' * 499}… `"),
    ],
)
def test_a_name_is_text_and_nothing_else(name, shown):
    assert quoted(name) == shown


def test_a_person_is_shown_what_the_plan_does(tmp_path):
    run = make_run(ClusterStorage(str(tmp_path), "east"), [move_row(n, "a:1", "b:1") for n in range(2)])
    counts = [{"topics": n, "producers": 2 * n, "consumers": None} for n in (3, 4, 5)]
    stop_reason = [{"cluster": "east", "broker": "a:1", "bundle": bundle(n), **each} for n, each in enumerate(counts)]
    (run / "input" / "bundles.parquet").write_table(table(stop_reason, BUNDLES))
    summary, moves = Summary.read(run), list(read_moves(run))
    half = Split(bundle=bundle(4), broker="a:1", algorithm="range_equally_divide", positions=(5, 9), shares=(1, 0, 0))

    shown = approval_request(summary, Actions(moves * 11, [half]), run, NOW)
    assert shown.subject == "Move 22 bundles and split 1 bundle in cluster east?"
    assert shown.body.splitlines()[2:] == [
        f"* plan `{summary.hash[:16]}` of run `{run.name}`: approve it before 2026-11-22 12:00 UTC",
        "* scores 10.0 to 70.0 %",
        "* disturbs 7 topics, 14 producers, 0 consumers",
        f"* splits ` {bundle(4)} ` permanently at 0x00000005, 0x00000009 "
        "into parts with 100 %, 0 %, 0 % of the traffic",
        "",
        *(f"* ` {bundle(n)} `: ` a:1 ` to ` b:1 `" for _ in range(10) for n in range(2)),
        f"* and 2 more moves: ` {run.uri} `",
    ]

    grown = half.model_copy(update={"unload": True, "condition": "topics", "value": 5, "bound": 4})
    shown = approval_request(summary, Actions(moves, [grown.model_copy(update={"bundle": bundle(2)})]), run, NOW)
    assert "* disturbs 12 topics, 24 producers, 0 consumers\n" in shown.body
    assert "% of the traffic; the parts are unloaded (it has 5 topics, more than 4)\n" in shown.body

    after = summary.model_copy(update={"predicted_min": 20.0, "predicted_max": 40.0})
    shown = approval_request(after, Actions(moves * 10, []), run, NOW)
    assert shown.subject == "Move 20 bundles in cluster east?"
    assert "* scores 10.0 to 70.0 %, afterwards 20.0 to 40.0 % (predicted)\n" in shown.body
    assert " more " not in shown.body
    many = approval_request(summary, Actions(moves, [half] * 23), run, NOW)
    assert many.body.endswith(f"* and 3 more splits: ` {run.uri} `")
