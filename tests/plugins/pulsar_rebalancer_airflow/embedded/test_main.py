import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from pulsar_rebalancer_airflow.embedded import MakeRunError
from pulsar_rebalancer_airflow.embedded import __main__ as embedded_main
from pulsar_rebalancer_airflow.embedded.__main__ import RunLine, _existing_cluster, _parser, main
from pulsar_rebalancer_airflow.embedded.airflow_home import AirflowHome, lock_folder
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes


@pytest.fixture
def _process_as_it_was() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    mask = os.umask(0o077)
    yield
    os.umask(mask)
    for number, handler in handlers.items():
        signal.signal(number, handler)


class _Interrupted(Processes):
    """Interrupted at the very moment when the ending of its processes begins."""

    def stop(self) -> None:
        signal.raise_signal(signal.SIGHUP)
        super().stop()


@pytest.mark.parametrize("before", [[], [signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
@pytest.mark.usefixtures("_process_as_it_was")
def test_however_often_it_is_interrupted_no_process_stays(before, tmp_path, monkeypatch):
    started = []

    def run(_given: object, processes: Processes) -> int:
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        started.append(processes.start("child", command, os.environ, tmp_path / "log"))
        for number in before:
            signal.raise_signal(number)
        return 0

    monkeypatch.setattr(embedded_main, "Processes", _Interrupted)
    monkeypatch.setattr(embedded_main, "_run", run)
    assert main(["--folder", str(tmp_path / "run")]) == 130
    assert not psutil.pid_exists(started[0])


def test_a_password_in_an_address_is_not_shown():
    with pytest.raises(MakeRunError, match="use a token") as refused:
        _existing_cluster(_parser().parse_args(["--pulsar", "http://me:s3cret@broker:8080"]))
    assert "s3cret" not in str(refused.value)


def test_a_folder_of_somebody_else_is_not_deleted(tmp_path):
    thesis = tmp_path / "simulated" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    home = AirflowHome(folder=thesis.parent, cluster_settings={}, connections={})

    with pytest.raises(MakeRunError, match="no earlier run created"):
        home.prepare(keep_data=False)
    assert thesis.read_text() == "years of work"

    thesis.unlink()
    home.prepare(keep_data=False)
    old = home.storage_folder / "old"
    old.mkdir(parents=True)
    home.prepare(keep_data=False)
    assert not old.exists()


@pytest.mark.usefixtures("_process_as_it_was")
def test_a_second_run_in_the_same_folder_does_not_begin(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(embedded_main, "_run", lambda *_: 0)
    with lock_folder(tmp_path):
        assert main(["--folder", str(tmp_path)]) == 1
        said = capsys.readouterr().err
        assert f"another run is using {tmp_path}" in said
        assert "--folder" in said
        assert main(["--folder", str(tmp_path / "another")]) == 0
    assert main(["--folder", str(tmp_path)]) == 0


STRANGER = 4321
"""Number of another user."""

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def belongs_to_a_stranger(folder: Path) -> Path:
    folder.mkdir(mode=0o755)
    os.chown(folder, STRANGER, -1)
    return folder


def is_a_link_of_a_stranger(folder: Path) -> Path:
    own = folder.with_name("own")
    own.mkdir()
    (belongs_to_a_stranger(folder) / "link").symlink_to(own)
    return folder / "link"


def is_a_link_to_a_stranger(folder: Path) -> Path:
    link = folder.with_name("link")
    link.symlink_to(belongs_to_a_stranger(folder) / "run")
    return link


def is_open_to(mode: int, below: str = "") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        folder.mkdir()
        folder.chmod(mode)
        return folder / below

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(belongs_to_a_stranger, f"{{}} belongs to another user (id {STRANGER})", marks=AS_ROOT),
        pytest.param(lambda folder: belongs_to_a_stranger(folder) / "run", "{} belongs to another user", marks=AS_ROOT),
        pytest.param(is_a_link_of_a_stranger, "{} belongs to another user", marks=AS_ROOT),
        pytest.param(is_a_link_to_a_stranger, "{} belongs to another user", marks=AS_ROOT),
        (is_open_to(0o770), "run chmod go-w {}"),
        (is_open_to(0o770, "run"), "other users may write to {}"),
        (is_open_to(0o1777), "other users may write to {}"),
    ],
)
@pytest.mark.usefixtures("_process_as_it_was")
def test_a_folder_whose_files_others_could_replace_is_refused(tmp_path, monkeypatch, capsys, make, said):
    monkeypatch.setattr(embedded_main, "_run", lambda *_: 0)
    folder = tmp_path / "theirs"
    assert main(["--folder", str(make(folder))]) == 1
    refused = capsys.readouterr().err
    assert said.format(folder) in refused
    assert "choose another folder (make run FOLDER=" in refused
    assert not [*tmp_path.rglob("run"), *tmp_path.rglob("lock")]


BALANCED, WAITS = RunLine("the line", is_balanced=True), RunLine("the line")
MOVED = RunLine("the line", has_moved=True)
FAILED = RunLine("the line", why_failed="decide failed [bad_value]")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def watch(lines: list[RunLine], *, once: bool, acts: bool = True) -> int:
        airflow = Mock(spec=LocalAirflow, **{"ended_runs.return_value": iter(lines)})
        return embedded_main._watch_runs(airflow, "dag", one_run=once, may_act=acts)

    monkeypatch.setattr(embedded_main, "describe_run", lambda _airflow, _dag_id, line, _number: line)
    return watch


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([WAITS, *[FAILED] * 3, BALANCED], r"3 runs in a row failed\. Last failure: decide failed \[bad_value\]"),
        ([MOVED, *[WAITS] * 49, BALANCED], "not balanced after 50 runs; the last run: the line"),
        ([*[BALANCED] * 50, MOVED], "nothing was moved after 50 runs; the last run: the line"),
    ],
)
def test_once_gives_up_with_the_reason(watch, lines, reason):
    with pytest.raises(MakeRunError, match=reason):
        watch(lines, once=True)
