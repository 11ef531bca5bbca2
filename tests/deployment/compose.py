"""docker-compose.yaml as a container engine reads it: anchors merged, variables filled in."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

SOURCE = Path(__file__).resolve().parents[2]
COMPOSE = SOURCE / "docker-compose.yaml"
ENV_EXAMPLE = SOURCE / ".env.example"

_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Z_][A-Z0-9_]*)(?:(?P<kind>:[?-])(?P<rest>[^}]*))?\}|(?P<bad>))"
)


class MissingVariableError(ValueError):
    """A required variable has no value, or a `$` is no variable."""


class Mount(NamedTuple):
    source: str
    target: str
    read_only: bool = False
    subpath: str = ""


def mounts(service: Mapping[str, Any]) -> Iterator[Mount]:
    for volume in service.get("volumes", ()):
        if isinstance(volume, str):
            source, target, *mode = volume.split(":")
            yield Mount(source, target, mode == ["ro"])
        else:
            yield Mount(volume["source"], volume["target"], subpath=volume["volume"]["subpath"])


def load(variables: Mapping[str, str]) -> dict[str, Any]:
    document = _filled(yaml.safe_load(COMPOSE.read_text()), variables)
    return {name: value for name, value in document.items() if not name.startswith("x-")}


def raw() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


def variables() -> dict[str, set[str]]:
    """Names of the variables in the file, and how each is asked for: `:?`, `:-` or nothing."""
    found: dict[str, set[str]] = {}
    for match in _VARIABLE.finditer(COMPOSE.read_text()):
        if match["name"]:
            found.setdefault(match["name"], set()).add(match["kind"] or "")
    return found


def read_env(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pairs = (line.split("=", 1) for line in lines)
    return {name: value[1:-1] if value[:1] == value[-1:] == "'" else value for name, value in pairs}


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        if match["name"] is None:
            raise MissingVariableError(f"a lone $ in {value!r}")
        given = variables.get(match["name"], "")
        if not given and match["kind"] != ":-":
            raise MissingVariableError(f"{match['name']}: {match['rest']}")
        return given or match["rest"]

    return _VARIABLE.sub(replace, value)
