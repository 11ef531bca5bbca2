"""A CPU control group for every broker, so that each reports its own CPU usage and its own limit.

Brokers that share a control group all report the CPU of the whole machine. Pulsar takes usage and limit from the
group of its process (``LinuxInfoUtils``); the limit is ``quota / period`` in percent of one core.
"""

import time
from pathlib import Path

PERIOD_US = 100_000
_ROOT = Path("/sys/fs/cgroup")
# The shell joins the groups and then becomes the broker: not one instruction of the JVM runs outside.
_JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 97; shift; done; shift; exec "$@"'


class CgroupError(RuntimeError):
    """Control groups cannot be made or changed here; the message says what is missing."""


class CpuGroup:
    """One control group with a CPU quota, made by this object and removed by it."""

    def __init__(self, name: str, root: Path = _ROOT) -> None:
        self._unified = (root / "cgroup.controllers").exists()
        self._made: list[Path] = []
        try:
            if self._unified and "cpu" not in (root / "cgroup.subtree_control").read_text().split():
                (root / "cgroup.subtree_control").write_text("+cpu")
            for controller in self._controllers(root):
                folder = controller / name
                folder.mkdir()
                self._made.append(folder)
        except OSError as error:
            self.remove()
            raise CgroupError(
                f"cannot make the control group {name!r} ({error}): run as root with {root} writable "
                "(in a container: --privileged with its own control group namespace)"
            ) from error

    def _controllers(self, root: Path) -> list[Path]:
        if self._unified:
            return [root]
        missing = [c for c in ("cpu", "cpuacct") if not (root / c / "cgroup.procs").exists()]
        if missing:
            raise FileNotFoundError(f"no controller {' and no '.join(missing)} below {root}")
        # Many systems mount both controllers as one folder with two names.
        return sorted({(root / c).resolve() for c in ("cpu", "cpuacct")})

    def wrap(self, command: list[str]) -> list[str]:
        """The command line that runs ``command`` (same process id) inside the group."""
        return ["/bin/sh", "-c", _JOIN, "sh", *(str(f / "cgroup.procs") for f in self._made), "--", *command]

    def set_quota(self, quota_us: int | None) -> None:
        """Limit the group's CPU time, in microseconds per 100,000; None lifts the limit."""
        if self._unified:
            file, value = "cpu.max", f"{'max' if quota_us is None else quota_us} {PERIOD_US}"
        else:
            file, value = "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us)
        folder = next(f for f in self._made if (f / file).exists())
        try:
            (folder / file).write_text(value)
        except OSError as error:
            raise CgroupError(f"cannot write {value!r} to {folder / file}: {error}") from error

    def cpu_seconds(self) -> float:
        if self._unified:
            (folder,) = self._made
            counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            return int(counts["usage_usec"]) / 1e6
        folder = next(f for f in self._made if (f / "cpuacct.usage").exists())
        return int((folder / "cpuacct.usage").read_text()) / 1e9

    def remove(self) -> None:
        """Remove the folders this object made; its processes must have ended."""
        deadline = time.monotonic() + 10
        while self._made:
            try:
                self._made[-1].rmdir()
            except OSError as error:
                # A killed process leaves its group a moment after it was waited for.
                if time.monotonic() > deadline:
                    raise CgroupError(f"cannot remove {self._made[-1]}: {error}") from error
                time.sleep(0.05)
            else:
                self._made.pop()
