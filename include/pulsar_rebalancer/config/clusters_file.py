"""Read the YAML clusters file. An invalid entry does not affect the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME
from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.config.typed import typed_values
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pulsar_rebalancer.config.settings import Check


class _Entries(dict[Any, Any]):
    """A mapping that records repeated keys. YAML itself silently keeps only the last value of a repeated key."""

    repeated: tuple[str, ...] = ()


_DEEPEST = 20
"""Maximum number of nesting levels in a clusters file; a valid file has four."""

_MOST_VALUES = 100_000
"""Maximum number of values in a clusters file; the values of an alias count each time it is used."""


_LONGEST_PROBLEM = 300


class _Loader(yaml.SafeLoader):
    """Reads plain YAML values only. An invalid value in one entry does not make the whole file unreadable."""

    def get_single_node(self) -> yaml.Node | None:
        """Return the document's root; reject a document that is too deeply nested or, counting aliases, too large."""
        try:
            node: yaml.Node | None = super().get_single_node()
        except RecursionError:
            raise yaml.YAMLError(_TOO_DEEP) from None
        if node is not None and _size(node, (), {}) > _MOST_VALUES:
            raise yaml.YAMLError(f"its aliases make more than {_MOST_VALUES:,} values of it")
        return node

    def construct_time(self, node: yaml.ScalarNode) -> object:
        # A date that does not exist stays text, so that only its setting is refused.
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError:
            return node.value

    def construct_entries(self, node: yaml.MappingNode) -> Iterator[_Entries]:
        entries = _Entries()
        yield entries
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<")
        entries.repeated = tuple(key for key, count in counts.items() if count > 1)
        entries.update(self.construct_mapping(node))


_TOO_DEEP = f"it is nested more than {_DEEPEST} levels deep"


def _size(node: yaml.Node, above: tuple[int, ...], known: dict[int, int]) -> int:
    """Return the number of values in a node; the values of an alias count each time it is used."""
    if id(node) in above:
        raise yaml.YAMLError(f"an alias in line {node.start_mark.line + 1} contains itself")
    if len(above) >= _DEEPEST:
        raise yaml.YAMLError(_TOO_DEEP)
    if id(node) not in known and not isinstance(node, yaml.ScalarNode):
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_size(part, (*above, id(node)), known) for part in parts)
    return known.get(id(node), 1)


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_entries)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_time)


class ClusterEntry(BaseModel):
    """One cluster from the clusters file.

    Attributes:
        name: the cluster's name in this file; folder names and DAG ids contain it.
        given: the cluster's settings in the file, including those from `defaults`, by our field names.
        settings: the given settings, with Pulsar's defaults for all other settings. The live brokers' settings are
            added later.
        error: why the entry cannot be used; empty if it can be used. An entry that cannot be used has the default
            settings.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    given: dict[str, object]
    settings: Settings
    error: str = ""


def load_clusters(path: Path, check: Check | None = None) -> list[ClusterEntry]:
    """Return the clusters in a file, in file order.

    The file contains a mapping `clusters` from names to settings and, optionally, `defaults` for all clusters.

    Args:
        path: path of the clusters file.
        check: additional check, as in `validate`.

    Raises:
        SettingsError: `wrong_setting` if the file as a whole cannot be read. A single invalid entry raises no error.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or _Entries()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(Reason.WRONG_SETTING, f"{path.name}: cannot be read: {_problem(error)}") from None
    if not isinstance(document, _Entries) or set(document) - {"defaults", "clusters"}:
        raise SettingsError(Reason.WRONG_SETTING, f"{path.name}: expected only the keys `defaults` and `clusters`")
    _refuse_repeated(document, path.name)
    defaults, clusters = document.get("defaults") or _Entries(), document.get("clusters") or _Entries()
    if not isinstance(defaults, _Entries) or not isinstance(clusters, _Entries):
        raise SettingsError(Reason.WRONG_SETTING, f"{path.name}: `defaults` and `clusters` must be mappings")
    twice = clusters.repeated
    return [
        _entry(str(name), defaults, given, path.name, check, twice=str(name) in twice)
        for name, given in clusters.items()
    ]


def _problem(error: Exception) -> str:
    """Return a one-line description of an error, with its position in the file."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())[:_LONGEST_PROBLEM]
    context = f"{error.context}, " if error.context else ""
    place = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    return f"{place}: {f'{context}{error.problem}'[:_LONGEST_PROBLEM]}"


def _refuse_repeated(entries: _Entries, where: str) -> None:
    if entries.repeated:
        raise SettingsError(Reason.CONTRADICTION, f"{where}: written more than once: {', '.join(entries.repeated)}")


def _entry(
    name: str, defaults: _Entries, given: object, file: str, check: Check | None, *, twice: bool
) -> ClusterEntry:
    safe = name if CLUSTER_NAME.fullmatch(name) else "".join(c if c.isalnum() else "_" for c in name)[:60] or "unnamed"
    try:
        if safe != name:
            raise SettingsError(
                Reason.WRONG_SETTING, f"{file}: {name!r} is not a cluster name: only letters, digits, . _ - are allowed"
            )
        if twice:
            raise SettingsError(Reason.CONTRADICTION, f"{file}: two clusters are named {name}: give each its own name")
        if given is not None and not isinstance(given, _Entries):
            raise SettingsError(Reason.WRONG_SETTING, f"{file}: {name}: expected a mapping of settings")
        merged = _by_field(defaults, f"{file}: defaults") | _by_field(given or _Entries(), f"{file}: {name}")
        return ClusterEntry(name=name, given=merged, settings=validate(merged, where=f"{file}: {name}", check=check))
    except SettingsError as error:
        return ClusterEntry(name=safe, given={}, settings=Settings(), error=str(error))


def _by_field(entries: _Entries, where: str) -> dict[str, object]:
    _refuse_repeated(entries, where)
    given: dict[str, object] = {}
    for key, value in entries.items():
        field = FIELD_OF_PULSAR_NAME.get(str(key), str(key))
        if field in given:
            raise SettingsError(Reason.CONTRADICTION, f"{where}: {field} is written under both its names")
        if isinstance(value, _Entries):
            _refuse_repeated(value, f"{where}: {field}")
        given[field] = value
    return typed_values(given, where)
