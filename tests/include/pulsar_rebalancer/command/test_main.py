import pytest

from pulsar_rebalancer.command.__main__ import SUBCOMMANDS, main


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_subcommand_explains_its_exit_codes(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])

    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert [code for code in "012" if f"\n  {code}  " not in said] == []


@pytest.mark.parametrize("wrong", [[], ["drian"], ["drain"], ["check-age", "--root"]])
def test_wrong_usage(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)

    assert ended.value.code == 2
