import pytest
from scripts import mutants


def test_a_subject_with_a_pattern_that_matches_no_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no file matches include/gone\.py"):
        mutants.drawn(mutants.Subject(["scripts/mutations.py", "include/gone.py"], []), seed=1, count=1)


@pytest.mark.parametrize("name", mutants.SUBJECTS)
def test_every_subject_has_faults_and_tests(name: str) -> None:
    assert mutants.drawn(mutants.SUBJECTS[name], seed=1, count=1)
    assert all((mutants.ROOT / test).exists() for test in mutants.SUBJECTS[name].tests)


def test_an_excused_survivor_counts_as_alive() -> None:
    tried = mutants.drawn(mutants.SUBJECTS["gate"], seed=1, count=4)
    excused = f"| {mutants.key(tried[0])} | a reason |\n"

    written = mutants.page(excused, {"gate": tried}, {"gate": tried[:1]})

    assert excused in written
    assert "4 tried, 3 noticed by tests: 75.0%." in written
