"""Git in repositories that tests make: what a person or a hook has set does not count there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def ignore_own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git reads only the repository's own configuration, and commits in a made-up name."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    who = {f"GIT_{role}_{what}": "t@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for name, value in ({"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"} | who).items():
        monkeypatch.setenv(name, value)
