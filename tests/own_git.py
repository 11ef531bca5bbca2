"""Git without the settings of the user or of a hook, for repositories that tests make."""

import os

import pytest


def git_environment() -> dict[str, str]:
    """Return the environment in which Git reads only a repository's own configuration and commits in a made-up name."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{role}_{what}": "t@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return others | who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def ignore_own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use that environment in this process."""
    environment = git_environment()
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
