import pytest

from pulsar_rebalancer.config.clusters_file import load_clusters
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.errors import SettingsError


def write(tmp_path, text):
    path = tmp_path / "clusters.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_merged_under_either_name(tmp_path):
    path = write(
        tmp_path,
        """
        defaults: {minUnloadMessage: 10, mode: auto}
        clusters:
          east: {min_unload_message: 20}
          west:
        """,
    )
    east, west = load_clusters(path)
    assert (east.name, east.settings.min_unload_message, east.settings.mode) == ("east", 20, Mode.AUTO)
    assert (west.name, west.settings.min_unload_message) == ("west", 10)
    assert east.given == {"min_unload_message": 20, "mode": "auto"}


def test_a_broken_entry_says_so_and_the_others_live(tmp_path):
    path = write(
        tmp_path,
        """
        clusters:
          good: {mode: auto}
          typo: {moed: auto}
          list: [1]
          "../evil": {}
        """,
    )
    good, typo, listed, evil = load_clusters(path)
    assert not good.error
    assert "moed" in typo.error
    assert typo.settings.mode is Mode.OBSERVE
    assert "mapping" in listed.error
    assert "not a cluster name" in evil.error
    assert "/" not in evil.name
    assert "." not in evil.name


def test_two_clusters_of_one_name_are_refused_and_the_others_live(tmp_path):
    east, west = load_clusters(write(tmp_path, "clusters:\n  east: {mode: auto}\n  west: {}\n  east: {}\n"))
    assert "two clusters are named east" in east.error
    assert not west.error


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{low_threshold: 10, mode: auto, low_threshold: 5}", "repeated: low_threshold"),
        (
            "{low_threshold: 10, loadBalancerAvgShedderLowThreshold: 30}",
            "low_threshold is set twice, once under Pulsar's name",
        ),
        (
            "{pause: {until: 2027-01-05T10:00:00Z, until: 2026-01-05T10:00:00Z, reason: x}}",
            "pause: these keys are repeated: until",
        ),
        ("{pause: {until: 2026-11-31T12:00:00+00:00, reason: x}}", "pause.until"),
        ("{pause: {until: 2026-11-30 12:00:00, reason: x}}", "timezone"),
    ],
)
def test_doubtful_yaml_is_refused(tmp_path, entry, said):
    text = f"clusters:\n  east: {entry}\n  west: {{}}\n"
    east, west = load_clusters(write(tmp_path, text))
    assert said in east.error
    assert not west.error


def test_an_entry_may_merge_two_others(tmp_path):
    text = "clusters:\n  a: &a {mode: auto}\n  b: &b {low_threshold: 10}\n  east: {<<: *a, <<: *b}\n"
    *_, east = load_clusters(write(tmp_path, text))
    assert east.error == ""
    assert east.given == {"mode": "auto", "low_threshold": 10}


@pytest.mark.parametrize(
    "text",
    [
        "clusters: [",
        "- a",
        "1",
        "cluster: {}",
        "clusters: 1",
        "clusters: {}\nclusters: {}",
        'clusters: {a: !!float "ten"}',
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, text):
    with pytest.raises(SettingsError, match=r"clusters\.yaml"):
        load_clusters(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "clusters:\n  east:\n    mode: auto\n   placement: x\n",
            "line 4, column 4: while parsing a block mapping, expected",
        ),
        ("clusters:\n  east: {mode: [}\n", "line 2, column 17: while parsing a flow node, expected the node content"),
        ("clusters:\n\teast: 1\n", "line 2, column 1: while scanning for the next token, found character"),
        ("clusters: *nobody\n", "line 1, column 11: found undefined alias 'nobody'"),
        ("clusters: {east: !!python/name:os.system x}\n", "line 1, column 18: could not determine a constructor"),
        ("a: \0", "unacceptable character #x0000: special characters are not allowed"),
    ],
)
def test_a_mistake_is_located(tmp_path, text, place):
    (tmp_path / "clusters.yaml").write_text(text)

    with pytest.raises(SettingsError) as refused:
        load_clusters(tmp_path / "clusters.yaml")

    assert refused.value.message.startswith(f"clusters.yaml: cannot be read: {place}")


def test_a_bare_off_is_the_mode_off(tmp_path):
    assert load_clusters(write(tmp_path, "")) == []
    (entry,) = load_clusters(write(tmp_path, "clusters: {east: {mode: off}}"))
    assert not entry.error
    assert entry.settings.mode is Mode.OFF


LAUGHS = "\n".join(f"  l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 30))
MERGES = "\n".join(f"  m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}" for i in range(1, 30))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"clusters: {{east: {{pause: {'[' * 5000}{']' * 5000}}}}}", "nested"),
        ("clusters: {east: {pause: " + "{a: " * 150 + "}" * 150 + "}}", "nested"),
        ("clusters: &all {east: *all}", "contains itself"),
        ("clusters: {east: &own {<<: *own, mode: auto}}", "contains itself"),
        ("clusters: {east: {excluded_brokers: &own [*own]}}", "contains itself"),
        (f"defaults:\n  l0: &l0 [a]\n{LAUGHS}\nclusters: {{east: {{excluded_brokers: *l29}}}}", "aliases"),
        (f"defaults:\n  m0: &m0 {{a: 1}}\n{MERGES}\nclusters: {{east: {{pause: *m29}}}}", "aliases"),
    ],
    ids=["5,000 levels", "150 levels", "all in itself", "merged into itself", "list in itself", "laughs", "merges"],
)
def test_a_file_of_endless_depth_or_size_is_refused(tmp_path, text, said):
    with pytest.raises(SettingsError, match=rf"clusters\.yaml.*{said}") as refused:
        load_clusters(write(tmp_path, text))
    assert len(str(refused.value)) < 500


def test_a_number_of_5000_digits_is_not_shown(tmp_path):
    (east,) = load_clusters(write(tmp_path, f"clusters: {{east: {{hit_count_low: 0x{'f' * 5000}}}}}"))
    assert "got a int too large to be shown" in east.error


@pytest.mark.parametrize(
    "value", ["0x" + "f" * 5000, "1" + "0" * 400, "[" * 15 + "]" * 15, "{a: {b: {c: {d: 1}}}}", ".inf"]
)
def test_a_value_that_cannot_be_shown_whole_breaks_its_own_entry_alone(tmp_path, value):
    text = f"clusters: {{east: {{hit_count_low: {value}}}, north: {{cpu_weight: {value}}}, west: {{}}}}"
    east, north, west = load_clusters(write(tmp_path, text))
    assert "hit_count_low" in east.error
    assert "cpu_weight" in north.error
    assert max(len(east.error), len(north.error)) < 500
    assert not west.error
