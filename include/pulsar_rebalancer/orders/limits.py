"""What the settings allow: the mode, the caps, and the namespaces, brokers and bundles that they exclude."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.settings import CAPS, Settings
from pulsar_rebalancer.names import matches_pattern, regex_of_glob
from pulsar_rebalancer.orders.order import Hold, OrderKind, Situation, Wording
from pulsar_rebalancer.reasons import Reason

MAX_NAMED = 3
"""Maximum number of names in a text."""

_CAP_UNITS = dict(
    zip(CAPS, ("bundles per run", "bundles per broker", "bundles per namespace", "bytes/s per run"), strict=True)
)

_ORIGIN_TEXT = {Origin.FILE: "the clusters file", Origin.PARAMS: "this run's parameters", Origin.BROKERS: "the brokers"}


def _limit_texts(situation: Situation) -> Iterator[str]:
    settings, origins = situation.settings, situation.orders.setting_origins

    def settings_from(origin: Origin, *names: str) -> Iterator[tuple[str, str]]:
        return (
            (name, getattr(settings, name))
            for name in names
            if origins.get(name, Origin.FILE) is origin and getattr(settings, name) not in (None, ())
        )

    for origin, by in _ORIGIN_TEXT.items():
        if capped := [f"{value:.12g} {_CAP_UNITS[name]}" for name, value in settings_from(origin, *CAPS)]:
            yield f"caps from {by}: {', '.join(capped)}"
        for name, names in settings_from(origin, "excluded_namespaces", "excluded_brokers", "excluded_bundles"):
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            yield f"{name.replace('_', ' ')} set by {by}: {', '.join(names[:MAX_NAMED])}{more}"


def exclusion_reason(settings: Settings, bundle: str, brokers: Collection[str]) -> Reason | None:
    """Return why a bundle or one of the brokers is excluded, except for its namespace."""
    if any(broker in settings.excluded_brokers for broker in brokers):
        return Reason.BROKER_EXCLUDED
    return (
        Reason.BUNDLE_EXCLUDED
        if any(matches_pattern(regex_of_glob(pattern), bundle) for pattern in settings.excluded_bundles)
        else None
    )


MODE = OrderKind(
    hold_of=lambda facts: None if facts.settings.mode.may_move else Hold(Reason.OBSERVE, f"mode {facts.settings.mode}"),
    words={Reason.OBSERVE: Wording(lasting=True)},
)

LIMITS = OrderKind(order_texts=_limit_texts, kept_namespaces=lambda settings, _: settings.excluded_namespaces)
