"""The one YAML file of clusters: a broken entry is told apart from the others, which live."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.settings import FIELD_OF_PULSAR_NAME, Settings, validate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Entries(dict[Any, Any]):
    """A mapping that knows which keys were written more than once; YAML keeps the last without a word."""

    repeated: tuple[str, ...] = ()


class _Loader(yaml.SafeLoader):
    """Safe, and gentle: what is wrong with an entry does not make the whole file unreadable."""

    def construct_time(self, node: yaml.ScalarNode) -> object:
        # A day that does not exist stays text, and is then one wrong setting.
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


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_entries)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_time)


class ClusterEntry(BaseModel):
    """One cluster of the file.

    Attributes:
        name: the cluster's name here; folders and DAG ids carry it.
        given: what the file says, `defaults` merged in, by our field names.
        settings: the same with Pulsar's defaults filled in; the live brokers are asked later.
        error: why the entry cannot be used; then `settings` are the defaults.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    given: dict[str, Any]
    settings: Settings
    error: str = ""


def load_clusters(path: Path) -> list[ClusterEntry]:
    """The clusters of a file, in its order.

    The file has a mapping `clusters` of names to settings and, optionally, `defaults` for all of them.

    Raises:
        SettingsError: `wrong_setting` when the file as a whole cannot be read; a single broken entry does not raise.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or _Entries()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError("wrong_setting", f"{path.name}: cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(document, _Entries) or set(document) - {"defaults", "clusters"}:
        raise SettingsError("wrong_setting", f"{path.name}: expected the keys `defaults` and `clusters` alone")
    _refuse_repeated(document, path.name)
    defaults, clusters = document.get("defaults") or _Entries(), document.get("clusters") or _Entries()
    if not isinstance(defaults, _Entries) or not isinstance(clusters, _Entries):
        raise SettingsError("wrong_setting", f"{path.name}: `defaults` and `clusters` must be mappings")
    twice = clusters.repeated
    return [_entry(str(name), defaults, given, path.name, twice=str(name) in twice) for name, given in clusters.items()]


def _refuse_repeated(entries: _Entries, where: str) -> None:
    if entries.repeated:
        raise SettingsError("contradiction", f"{where}: written more than once: {', '.join(entries.repeated)}")


def _entry(name: str, defaults: _Entries, given: object, file: str, *, twice: bool) -> ClusterEntry:
    safe = name if CLUSTER_NAME.fullmatch(name) else "".join(c if c.isalnum() else "_" for c in name)[:60] or "unnamed"
    try:
        if safe != name:
            raise SettingsError("wrong_setting", f"{file}: {name!r} is no cluster name: letters, digits, . _ - only")
        if twice:
            raise SettingsError("contradiction", f"{file}: two clusters are named {name}: give each a name of its own")
        if given is not None and not isinstance(given, _Entries):
            raise SettingsError("wrong_setting", f"{file}: {name}: expected a mapping of settings")
        merged = _by_field(defaults, f"{file}: defaults") | _by_field(given or _Entries(), f"{file}: {name}")
        return ClusterEntry(name=name, given=merged, settings=validate(merged, where=f"{file}: {name}"))
    except SettingsError as error:
        return ClusterEntry(name=safe, given={}, settings=Settings(), error=str(error))


def _by_field(entries: _Entries, where: str) -> dict[str, Any]:
    _refuse_repeated(entries, where)
    found: dict[str, Any] = {}
    for key, value in entries.items():
        field = FIELD_OF_PULSAR_NAME.get(str(key), str(key))
        if field in found:
            raise SettingsError("contradiction", f"{where}: {field} is written under its two names")
        if isinstance(value, _Entries):
            _refuse_repeated(value, f"{where}: {field}")
        found[field] = value
    return found
