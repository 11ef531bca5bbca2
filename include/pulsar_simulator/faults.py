"""Faults of brokers: what they do wrong, and how they refuse a request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import NoneType


class Refusal(Exception):
    """An error that a broker returns as its response.

    Attributes:
        status: HTTP status.
        message: value of `reason` in the JSON answer.
        broker: brokerId of the broker that caused the refusal; empty if no single broker did.
    """

    def __init__(self, status: int, message: str, broker: str = "") -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.broker = broker


def read_json(body: bytes) -> object:
    """Return the JSON document in the body of a request.

    Raises:
        Refusal: 400 if the body is not JSON, contains NaN or lone surrogates, or is nested too deeply.
    """
    try:
        document: object = json.loads(body)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not a usable JSON document: {type(error).__name__}") from None
    return document


MAX_AMOUNT = 1e30
"""Maximum of a fault's amount and of a load factor, so that the values in reports stay finite."""


class FaultKind(StrEnum):
    """The kinds of faults, which `FAULT_INFOS` describes."""

    SILENT = "silent"
    SLOW = "slow"
    RESET = "reset"
    DEAD = "dead"

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    REDIRECT_TO_STRANGER = "redirect_to_stranger"
    REDIRECT_CIRCLE = "redirect_circle"
    ERROR_500 = "error_500"
    NULL_ANSWER = "null_answer"
    GARBAGE = "garbage"
    HALF_JSON = "half_json"
    HUGE_ANSWER = "huge_answer"

    NAN_USAGE = "nan_usage"
    BARE_NAN = "bare_nan"
    NEGATIVE_USAGE = "negative_usage"
    NEGATIVE_RATE = "negative_rate"
    HUGE_COUNT = "huge_count"
    MISSING_FIELD = "missing_field"
    OVER_LIMIT = "over_limit"
    ZERO_LIMIT = "zero_limit"
    STALE_LAST_UPDATE = "stale_last_update"
    FUTURE_CLOCK = "future_clock"
    WRONG_BROKER = "wrong_broker"
    UNACCOUNTED = "unaccounted"
    ODD_BUNDLE = "odd_bundle"

    TWO_OWNERS = "two_owners"
    LISTED_TWICE = "listed_twice"
    NOT_LISTED = "not_listed"
    STRAY = "stray"
    DESTINATION_VANISHES = "destination_vanishes"
    OTHER_CONFIGURATION = "other_configuration"
    CLIENTS_GONE = "clients_gone"


@dataclass(frozen=True, slots=True)
class FaultInfo:
    """The description and defaults of a kind of fault.

    Attributes:
        meaning: description of the fault in one line.
        paths: the fault applies only to requests whose path contains one of these texts; empty for all requests.
        amount: default of `Fault.amount`.
    """

    meaning: str
    paths: tuple[str, ...] = ()
    amount: float = 0.0


_REPORT = ("/load-report",)
_REDIRECTED_PATHS = ("/unload", "/lookup/", "/ownedNamespaces", "/topicHashPositions")

FAULT_INFOS: dict[FaultKind, FaultInfo] = {
    FaultKind.SILENT: FaultInfo("accepts the connection and never answers"),
    FaultKind.SLOW: FaultInfo("answers `amount` seconds late", amount=1.0),
    FaultKind.RESET: FaultInfo("resets the connection instead of answering"),
    FaultKind.DEAD: FaultInfo("refuses connections, but other brokers still list it"),
    FaultKind.UNAUTHORIZED: FaultInfo("401 with an HTML page, whatever the token"),
    FaultKind.FORBIDDEN: FaultInfo("403 with a JSON reason"),
    FaultKind.REDIRECT_TO_STRANGER: FaultInfo("307 to `target`, a host outside the cluster", _REDIRECTED_PATHS),
    FaultKind.REDIRECT_CIRCLE: FaultInfo("307 to the next broker that has this fault, in a loop", _REDIRECTED_PATHS),
    FaultKind.ERROR_500: FaultInfo("500, as the extensible load manager answers report requests", _REPORT),
    FaultKind.NULL_ANSWER: FaultInfo("the literal null, as the no-op load manager answers", _REPORT),
    FaultKind.GARBAGE: FaultInfo("200 with bytes that are not JSON", _REPORT),
    FaultKind.HALF_JSON: FaultInfo("200 with JSON that is cut off", _REPORT),
    FaultKind.HUGE_ANSWER: FaultInfo("200 with a valid JSON object of `amount` bytes", _REPORT, 64.0 * 1024 * 1024),
    FaultKind.NAN_USAGE: FaultInfo('cpu usage is "NaN", quoted as Jackson writes it', _REPORT),
    FaultKind.BARE_NAN: FaultInfo("cpu usage is NaN without quotes", _REPORT),
    FaultKind.NEGATIVE_USAGE: FaultInfo("cpu usage is -1", _REPORT),
    FaultKind.NEGATIVE_RATE: FaultInfo("the message rates of the first `amount` bundles are negative", _REPORT, 1.0),
    FaultKind.HUGE_COUNT: FaultInfo("the first `amount` bundles have 2^62 producers and consumers", _REPORT, 1.0),
    FaultKind.MISSING_FIELD: FaultInfo("the field named by `target` is missing (cpu if empty)", _REPORT),
    FaultKind.OVER_LIMIT: FaultInfo("usage of `target` (cpu if empty) is `amount` times its limit", _REPORT, 3.0),
    FaultKind.ZERO_LIMIT: FaultInfo(
        "limit of `target` (both NICs if empty) is 0, as for NICs of unknown speed", _REPORT
    ),
    FaultKind.STALE_LAST_UPDATE: FaultInfo("lastUpdate is `amount` seconds old", _REPORT, 3600.0),
    FaultKind.FUTURE_CLOCK: FaultInfo("the broker's clock is `amount` seconds ahead", _REPORT, 3600.0),
    FaultKind.WRONG_BROKER: FaultInfo("answers with the report of the next broker", _REPORT),
    FaultKind.UNACCOUNTED: FaultInfo("the broker's traffic is `amount` times the sum of its bundles", _REPORT, 2.0),
    FaultKind.ODD_BUNDLE: FaultInfo("the report has an idle extra bundle, which `target` names", _REPORT),
    FaultKind.TWO_OWNERS: FaultInfo("the broker lists `bundle` as its own, no matter which broker owns it"),
    FaultKind.LISTED_TWICE: FaultInfo("the list of active brokers names the broker twice"),
    FaultKind.NOT_LISTED: FaultInfo("the broker is missing from the list of active brokers"),
    FaultKind.STRAY: FaultInfo("a bundle unloaded with a destination lands on another broker"),
    FaultKind.DESTINATION_VANISHES: FaultInfo("the destination dies after the leader has accepted the move"),
    FaultKind.OTHER_CONFIGURATION: FaultInfo("settings in `values` replace those of the runtime configuration"),
    FaultKind.CLIENTS_GONE: FaultInfo("producers and consumers of `bundle` do not reconnect after its unload"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is enabled.

    Attributes:
        kind: kind of fault.
        broker: brokerId of the affected broker; None for all.
        bundle: full name of the affected bundle; None for all.
        path: text that the paths of affected requests contain; None for the kind's default, "" for all requests.
        amount: size of the fault, in a unit that depends on the kind; 0 for the kind's default.
        times: number of uses after which the fault ends; None for a fault that lasts until it is removed.
        target: URL, field name or bundle name, depending on the kind.
        values: configuration values, for some kinds.
    """

    kind: FaultKind
    broker: str | None = None
    bundle: str | None = None
    path: str | None = None
    amount: float = 0.0
    times: int | None = None
    target: str = ""
    values: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the types of all values, because faults can arrive over HTTP.

        Raises:
            TypeError, ValueError: a value is invalid; the message contains the attribute's name.
        """
        expected: dict[str, type | tuple[type, ...]] = {
            **dict.fromkeys(("broker", "bundle", "path"), (str, NoneType)),
            "amount": (int, float),
            "times": (int, NoneType),
            "target": str,
            "values": dict,
        }
        for name, types in expected.items():
            if not isinstance(getattr(self, name), types):
                raise TypeError(f"{name} of a fault has the wrong type: {getattr(self, name)!r}")
        if not 0 <= self.amount <= MAX_AMOUNT:
            raise ValueError(f"amount of a fault must be from 0 to {MAX_AMOUNT:g}, got {self.amount!r}")
        if not all(isinstance(text, str) for text in self.values.values()):
            raise TypeError("values of a fault must be strings")

    @property
    def size(self) -> float:
        """Return the amount, or the kind's default."""
        return self.amount or FAULT_INFOS[self.kind].amount

    def matches_request(self, broker: str | None = None, bundle: str | None = None, path: str | None = None) -> bool:
        """Return whether the fault applies. An argument that is None is not compared."""
        if self.broker is not None and broker is not None and self.broker != broker:
            return False
        if self.bundle is not None and bundle is not None and self.bundle != bundle:
            return False
        parts = FAULT_INFOS[self.kind].paths if self.path is None else (self.path,)
        return path is None or not parts or any(part in path for part in parts)


class Faults:
    """All enabled faults. There can be any number of them."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.changed: Callable[[], None] = lambda: None
        """Called after every change, while no lock is held."""

    def add(self, kind: FaultKind | str, broker: str | None = None, **more: object) -> Fault:
        """Enable a fault.

        Args:
            kind: kind of fault.
            broker: brokerId of the affected broker; None for all.
            **more: the other attributes of `Fault`.

        Raises:
            ValueError: the kind is unknown, or an amount is out of range.
            TypeError: an attribute is unknown, or has a wrong type.
        """
        fault = Fault(FaultKind(kind), broker, **more)  # type: ignore[arg-type]
        with self._lock:
            self._faults.append(fault)
        self.changed()
        return fault

    def clear(self, kind: FaultKind | str | None = None, broker: str | None = None) -> None:
        """Remove faults. If a kind or a broker is given, remove only the faults of that kind or broker."""
        with self._lock:
            self._faults = [
                fault
                for fault in self._faults
                if (kind is not None and fault.kind != kind) or (broker is not None and fault.broker != broker)
            ]
        self.changed()

    def all(self) -> list[Fault]:
        """Return the enabled faults, oldest first."""
        return list(self._faults)

    def find_fault(self, kind: FaultKind, **where: str | None) -> Fault | None:
        """Return the first fault of a kind that applies (see `Fault.matches_request`). This does not count as a use."""
        for fault in self._faults:
            if fault.kind is kind and fault.matches_request(**where):
                return fault
        return None

    def take_fault(self, kind: FaultKind, **where: str | None) -> Fault | None:
        """Return the first fault of a kind that applies, and count this as one of its uses (`times`)."""
        with self._lock:
            fault = self.find_fault(kind, **where)
            if fault is None or fault.times is None:
                return fault
            at = next(i for i, other in enumerate(self._faults) if other is fault)
            if fault.times > 1:
                self._faults[at] = replace(fault, times=fault.times - 1)
            else:
                del self._faults[at]
            return fault
