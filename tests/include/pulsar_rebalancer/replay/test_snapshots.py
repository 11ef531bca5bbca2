from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.include.pulsar_rebalancer.replay.recorded import CLUSTER, FOUR, Run, made, minute, recorded

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.replay.samples import RecordedSample, Recording
from pulsar_rebalancer.run.compaction import compact, days_before
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

A, B, C = "a:8080", "b:8080", "c:8080"
RUN = Run({A: 80, B: 20}, {A: {FOUR[0]: 10, FOUR[1]: 20}, B: {FOUR[2]: 30}})


def samples(recording: Recording) -> list[RecordedSample]:
    return list(recording.samples(recording.minutes()))


def compacted(storage: ClusterStorage) -> None:
    for day in days_before(storage, (minute(0) + timedelta(days=1)).date()):
        assert not compact(storage, day.date, day.runs, dry_run=False)
    storage.runs.delete()


def test_compacted_tables_are_read_as_the_runs_they_were_made_of(tmp_path: Path) -> None:
    policies = Policies(isolation=(IsolationPolicy(name="p", namespaces=("t/n",), primary=("a", "c")),))
    whole = Run(RUN.cpu, RUN.held, started={A: -1})
    again = Run(RUN.cpu, RUN.held, started={A: 1.5})
    extra = {"version": "4.2.4", "load_average": 0.5, "throughput_average": 7.0, "topics": 3}
    other = Run({A: 10, C: None}, {A: {FOUR[2]: 5, FOUR[3]: 1}}, left_out=(B,), extra=extra, policies=policies)
    folders = recorded(tmp_path, {0: whole, 1: other, 2: again})
    storage = ClusterStorage(str(tmp_path), CLUSTER)
    compacted(storage)
    tables = made(storage, tmp_path / "tables", 2)
    assert tables.roster.brokers == folders.roster.brokers == (A, B, C)
    assert tables.roster.bundles == folders.roster.bundles == tuple(sorted(FOUR))
    assert tables.coverage == folders.coverage
    for one, another in zip(samples(tables), samples(folders), strict=True):
        for name in ("registered", "is_reported", "report_age_s", "usage", "limits", "traffic"):
            np.testing.assert_array_equal(getattr(one.brokers, name), getattr(another.brokers, name), name)
        for name in ("owner", "loads", "has_restarted"):
            np.testing.assert_array_equal(getattr(one, name), getattr(another, name), name)
        assert (one.policies, one.reserved_by) == (another.policies, another.reserved_by)
    assert [sample.has_restarted.tolist() for sample in samples(tables)][1:] == [[False] * 3, [True, False, False]]
    first, second, third = (sample.brokers for sample in samples(tables))
    assert [sample.reserved_by for sample in samples(tables)] == [{}, {0: "p", 2: "p"}, {}]
    assert samples(tables)[1].policies == policies
    assert first.averages is None
    assert second.averages is not None
    assert second.averages[:, 0].tolist() == [0.5, 7.0]
    assert second.versions == ("4.2.4", None, None)
    assert third.traffic[-1].tolist() == [0, 0, 0]
    assert second.traffic[-1].tolist() == [3, 0, 0]


def test_of_several_samples_of_a_minute_the_last_counts(tmp_path: Path) -> None:
    recording = recorded(tmp_path, {0: RUN, 0.4: RUN, 0.9: Run({A: 5, B: 5}, RUN.held), 2: RUN})
    assert [float(sample.brokers.usage[0, 0]) for sample in samples(recording)] == [20, 320]
    assert recording.coverage.repeated == 2
    (note,) = recording.coverage.notes
    assert "a replay counts at most one hit a minute" in note
    assert "excluding 2 samples with a later sample in the same minute" in recording.coverage.sentence


def test_coverage_says_what_part_it_is(tmp_path: Path) -> None:
    coverage = recorded(tmp_path, dict.fromkeys((0, 1, 2, 12, 20), RUN)).coverage
    assert (coverage.samples, coverage.expected, coverage.gaps, coverage.longest_gap_minutes) == (5, 20, 2, 10)
    assert coverage.sentence.startswith(
        "5 of 20 samples (25.0%) from 2026-03-20 12:00 to 2026-03-20 12:20 UTC; 2 gaps ("
    )
    once = coverage.model_copy(update={"gaps": 1, "samples": 1, "expected": 1, "repeated": 1000})
    assert once.sentence.startswith("1 of 1 sample (")
    assert "; 1 gap (longest: 10 minutes); excluding 1,000 samples with" in once.sentence


def test_a_run_that_cannot_be_read_is_named_and_passed_over(tmp_path: Path) -> None:
    storage = ClusterStorage(str(tmp_path), CLUSTER)
    broken, text, newer, whole = (RUN.write(storage, minute(number)) for number in range(4))
    unruled = Run(RUN.cpu, RUN.held, policies=None).write(storage, minute(4))
    (broken / "input" / "bundles.parquet").write_bytes(b"no parquet")
    file = text / "input" / "bundles.parquet"
    table = file.read_table()
    place = table.schema.get_field_index("msg_rate_in")
    file.write_table(table.set_column(place, "msg_rate_in", pa.array(["10", "many", "30"])))
    table = (newer / "input" / "brokers.parquet").read_table()
    (newer / "input" / "brokers.parquet").write_table(table.replace_schema_metadata({"version": "99"}))
    recording = made(storage, tmp_path / "recording", 4)
    assert whole.exists()
    assert recording.coverage.samples == 1
    assert recording.coverage.unreadable_count == 4
    said = "\n".join(sorted(recording.coverage.unreadable))
    for words in (
        f"{broken.uri}/input/bundles.parquet",
        f"{file.uri}: column msg_rate_in holds string, not double (row 2: 'many')",
        "version 99",
        f"{unruled.uri}: input/policies.json is missing",
    ):
        assert words in said


@pytest.mark.parametrize(("table", "column"), [("brokers", "broker"), ("bundles", "broker"), ("bundles", "bundle")])
def test_a_table_that_lacks_a_name_is_told_with_its_row(table: str, column: str, tmp_path: Path) -> None:
    storage = ClusterStorage(str(tmp_path), CLUSTER)
    for number in range(2):
        RUN.write(storage, minute(number))

    def without_a_name(file: StoragePath) -> StoragePath:
        rows = file.read_table()
        names = rows[column].to_pylist()
        place = rows.schema.get_field_index(column)
        file.write_table(rows.set_column(place, column, pa.array([names[0], None, *names[2:]])))
        return file

    # As what was made of the day's runs, where every run comes after it.
    compacted(storage)
    day = f"date={minute(0).date().isoformat()}.parquet"
    of_day = without_a_name(storage.base / "history" / table / day)
    with pytest.raises(SnapshotError, match=f"{day}: column {column}, row 2: the name is missing"):
        made(storage, tmp_path / "tables", 2)
    of_day.delete()
    (storage.base / "history").delete()
    nameless, _ = (RUN.write(storage, minute(number)) for number in range(2))
    file = without_a_name(nameless / "input" / f"{table}.parquet")
    recording = made(storage, tmp_path / "recording", 2)
    assert recording.coverage.samples == 1
    assert recording.coverage.unreadable == (f"{file.uri}: column {column}, row 2: the name is missing",)


def test_a_bundle_with_two_owners_is_on_the_one_that_carries_more(tmp_path: Path) -> None:
    both = Run({A: 80, B: 20}, {A: {FOUR[0]: 10, FOUR[1]: 20}, B: {FOUR[0]: 300}})
    (sample,) = samples(recorded(tmp_path, {0: both}))
    assert sample.owner.tolist() == [1, 0]
    assert sample.loads[0].tolist() == [300, 20]


def test_a_run_that_validation_blocked_is_no_sample(tmp_path: Path) -> None:
    blocked = Run(RUN.cpu, RUN.held, blocked=True)
    folders = recorded(tmp_path, {0: RUN, 1: blocked, 2: RUN})
    compacted(ClusterStorage(str(tmp_path), CLUSTER))
    tables = made(ClusterStorage(str(tmp_path), CLUSTER), tmp_path / "tables", 2)
    for recording in (folders, tables):
        assert (recording.coverage.samples, recording.coverage.blocked) == (2, 1)
        assert "excluding 1 sample that validation blocked" in recording.coverage.sentence
