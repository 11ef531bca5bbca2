"""What the harness does with this host: commands, jars, control groups. No broker runs here."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pulsar.cgroup import CgroupError, CpuGroup
from tests.pulsar.distribution import DistributionError, cache_root, from_dependencies, from_server_distribution
from tests.pulsar.processes import LoggedProcess, ProcessError, free_ports

if TYPE_CHECKING:
    from tests.pulsar.distribution import Distribution

MAVEN_THAT_FAILS = "#!/bin/sh\necho 'Could not find artifact'\nexit 1\n"
MAVEN_THAT_FETCHES_NOTHING = "#!/bin/sh\nexit 0\n"


def stub_maven(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    for name, text in {"mvn": script, "java": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(("missing", "present"), [("mvn", "java"), ("java", "mvn")])
def test_a_missing_command_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, present: str
) -> None:
    (tmp_path / present).write_text("#!/bin/sh\n")
    (tmp_path / present).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DistributionError, match=rf"'{missing}' is not on PATH.*apt-get install"):
        from_dependencies("4.2.4", tmp_path / "cache")


@pytest.mark.parametrize(
    ("script", "message"),
    [(MAVEN_THAT_FAILS, "Could not find artifact"), (MAVEN_THAT_FETCHES_NOTHING, r"no pulsar-broker-9\.9\.9\.jar")],
)
def test_what_maven_left_undone_is_never_taken_for_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    stub_maven(tmp_path, monkeypatch, script)
    for _ in range(2):
        with pytest.raises(DistributionError, match=message):
            from_dependencies("9.9.9", tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".pulsar-9.9.9.lock"]


def test_a_version_is_fetched_once(
    pulsar_424: Distribution, pulsar_408: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_maven(tmp_path, monkeypatch, MAVEN_THAT_FAILS)
    assert from_dependencies("4.2.4") == pulsar_424
    assert from_server_distribution("4.0.8") == pulsar_408


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_REBALANCER_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("PULSAR_REBALANCER_CACHE")
    assert cache_root() == Path.home() / ".cache" / "pulsar-rebalancer"


def test_a_process_runs_inside_its_group_which_then_vanishes() -> None:
    name = f"harness-{secrets.token_hex(4)}"
    group = CpuGroup(name)
    try:
        done = subprocess.run(group.wrap(["cat", "/proc/self/cgroup"]), capture_output=True, text=True, check=True)
        assert f"/{name}\n" in done.stdout
        assert 0 < group.cpu_seconds() < 60
        group.set_quota(20_000)
        with pytest.raises(CgroupError, match="cannot write '1'"):
            group.set_quota(1)
    finally:
        group.remove()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


def test_missing_controllers_fail_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match=r"no controller cpu and no cpuacct.*run as root"):
        CpuGroup("any", tmp_path)


def test_a_group_of_somebody_else_is_neither_used_nor_removed() -> None:
    name = f"harness-{secrets.token_hex(4)}"
    mine = CpuGroup(name)
    try:
        with pytest.raises(CgroupError, match="File exists"):
            CpuGroup(name)
        mine.set_quota(50_000)
    finally:
        mine.remove()


def test_version_2_has_one_folder_and_one_quota_file(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    group = CpuGroup("broker", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    # The kernel makes these files with the folder.
    (tmp_path / "broker" / "cpu.max").write_text("max 100000\n")
    group.set_quota(20_000)
    assert (tmp_path / "broker" / "cpu.max").read_text() == "20000 100000"
    group.set_quota(None)
    assert (tmp_path / "broker" / "cpu.max").read_text() == "max 100000"
    (tmp_path / "broker" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert group.cpu_seconds() == 2.5
    for file in ("cpu.max", "cpu.stat"):
        (tmp_path / "broker" / file).unlink()
    group.remove()
    assert not (tmp_path / "broker").exists()


def test_a_process_that_ends_early_shows_the_end_of_its_log(tmp_path: Path) -> None:
    process = LoggedProcess("shell", ["/bin/sh", "-c", "echo the reason; exit 3"], tmp_path / "log")
    with pytest.raises(ProcessError, match=r"shell ended \(3\) before ready:\nthe reason"):
        process.await_that(lambda: False, "ready", 60)


def test_ports_are_free_and_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(set(free_ports(50))) == 50
    # Two workers pick most of their ports.
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    picked = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        picked.append(set(free_ports(4000)))
    assert not picked[0] & picked[1]
