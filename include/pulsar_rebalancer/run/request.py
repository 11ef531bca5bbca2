"""A run's request and the findings of its validation: two documents in the run's folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    computed_field,
    model_validator,
)

from pulsar_rebalancer.config.clusters_file import PLAN_HASH, RunParams, RunSettings
from pulsar_rebalancer.config.field_types import Action, Overrule, SplitAlgorithm
from pulsar_rebalancer.config.settings import parse_form_values
from pulsar_rebalancer.errors import FieldsError
from pulsar_rebalancer.names import HASH_RANGE_PATTERN, HashRange, is_broker_id, range_of
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.storage.documents import VersionedDocument


class RunRequest(VersionedDocument):
    """`input/settings.json`: a run's request, with its effective settings.

    Attributes:
        airflow_run_id: id of the DAG run; never part of a path, because it can contain `:` and users' text.
        requested_by: the operator who started a manual run; empty for scheduled runs.
        collected_at: the time of the sample; ages and counting are relative to it.
        dry_run: True if the run only shows a manual plan. It carries out nothing and has no outcome.
        closed: why nothing may be moved, if known before the decision; None if moves are allowed.
    """

    FILE: ClassVar[str] = "input/settings.json"

    cluster: str
    airflow_run_id: str
    requested_by: str = ""
    params: RunParams = RunParams()
    resolved: RunSettings
    collected_at: AwareDatetime
    dry_run: bool = False
    closed: Reason | None = None
    in_force: str = ""

    @property
    def is_forced(self) -> bool:
        """Return whether the run moves bundles without waiting for hits, and counts none."""
        return bool(self.params.force.strip())


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Reason
    subject: str = ""
    detail: str = ""
    cause: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def effect(self) -> Effect:
        return self.reason.effect

    @model_validator(mode="before")
    @classmethod
    def _drop_effect(cls, values: object) -> object:
        return {name: v for name, v in values.items() if name != "effect"} if isinstance(values, dict) else values


class Validation(VersionedDocument):
    FILE: ClassVar[str] = "validation.json"

    findings: tuple[Finding, ...] = ()

    def reason_counts(self, effect: Effect) -> dict[Reason, int]:
        return dict(Counter(f.reason for f in self.findings if f.effect is effect).most_common())

    @property
    def quarantine_reasons(self) -> dict[str, Reason]:
        return {f.subject: f.reason for f in self.findings if f.effect is Effect.QUARANTINE and f.subject}


_LISTED = 1000
_BUNDLES_PATTERN = re.compile(r"[^/\s]+/[^/\s]+(?:/[^/\s]+)?")


def _valid_broker(name: str) -> str:
    if name and not is_broker_id(name):
        raise ValueError(f"{name[:80]!r} is not a broker of the form host:port, as listed by /admin/v2/brokers")
    return name


def _valid_bundles(text: str) -> str:
    if len(text) > 512 or _BUNDLES_PATTERN.fullmatch(text) is None:
        raise ValueError(f"{text[:80]!r} is neither tenant/namespace, nor tenant/namespace/0x..._0x..., nor a pattern")
    return text


def _parsed_position(value: object) -> object:
    if isinstance(value, str) and len(value) <= len("0xffffffff"):
        try:
            return int(value, 16 if value.lower().startswith("0x") else 10)
        except ValueError:
            raise ValueError("give a hash such as 0x15000000") from None
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) and value else value or []


def _without_duplicates(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


_Broker = Annotated[str, AfterValidator(_valid_broker)]
_Brokers = Annotated[
    tuple[_Broker, ...], Field(max_length=_LISTED), BeforeValidator(_as_list), AfterValidator(_without_duplicates)
]
_Position = Annotated[int, Field(strict=True, ge=0, le=0xFFFFFFFF), BeforeValidator(_parsed_position)]

_REQUIRED_FIELDS = {
    Action.UNLOAD: ("bundles",),
    Action.DRAIN: ("broker", "reason"),
    Action.RELEASE: ("broker", "reason"),
    Action.FILL: ("broker",),
    Action.UNDO: ("run",),
    Action.SPLIT: ("bundles",),
}
_OPTIONAL_FIELDS = {Action.UNLOAD: ("destination",), Action.SPLIT: ("algorithm", "positions", "unload")}
_COMMON_FIELDS = ("action", "overrule", "reason", "plan")
_MOVE_OVERRULES = set(Overrule) - {Overrule.EVEN_SPLIT}
_ALLOWED_OVERRULES = {
    Action.UNLOAD: _MOVE_OVERRULES,
    Action.DRAIN: _MOVE_OVERRULES - {Overrule.CAPS},
    Action.RELEASE: set(),
    Action.FILL: _MOVE_OVERRULES,
    Action.UNDO: _MOVE_OVERRULES,
    Action.SPLIT: {Overrule.EXCLUSIONS, Overrule.EVEN_SPLIT},
}
_MISSING_TEXTS = {
    "bundles": "Give at least one bundle.",
    "broker": "Choose at least one broker.",
    "run": "Give the run to undo.",
    "reason": "Give a reason; it is recorded.",
}


class PlanRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Action | None = Field(None, description="what to do; empty to carry out a plan")
    bundles: tuple[Annotated[str, AfterValidator(_valid_bundles)], ...] = Field(
        (),
        max_length=_LISTED,
        description="unload: bundles, namespaces (tenant/namespace), or patterns with * and ?; split: one bundle",
    )
    destination: _Broker = Field(
        "", description="unload: broker (host:port) that gets the bundles; if empty, placement chooses brokers"
    )
    broker: _Brokers = Field((), description="drain, release, fill: the brokers (host:port)")
    algorithm: SplitAlgorithm | None = Field(
        None, description="split: Pulsar's name for the algorithm; if empty, the algorithm with the most even parts"
    )
    positions: tuple[_Position, ...] = Field(
        (), max_length=_LISTED, description="split: hashes at which specified_positions_divide cuts, such as 0x15000000"
    )
    unload: bool = Field(False, description="split: unload the parts afterwards, so that placement spreads them")
    run: str = Field("", max_length=80, description="undo: plan_id of the run (the name of the run's folder)")
    overrule: tuple[Overrule, ...] = Field((), description="rules that this plan may break; give a reason")
    reason: str = Field("", max_length=500, description="reason, recorded with the plan")
    plan: str = Field("", pattern=f"^({PLAN_HASH})?$", description="hash of the plan to carry out")

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        wrong = {} if self.plan else self._errors()  # with a plan, the other fields, if given, have to be the plan's
        if wrong:
            raise FieldsError(wrong)
        return self

    def _errors(self) -> dict[str, str]:
        if self.action is None:
            return {"action": "Choose an action, or give the hash of a plan that was shown."}
        needed, splits = _REQUIRED_FIELDS[self.action], self.action is Action.SPLIT
        known = {*needed, *_OPTIONAL_FIELDS.get(self.action, ()), *_COMMON_FIELDS}
        given = [name for name in type(self).model_fields if getattr(self, name)]
        wrong = {name: _MISSING_TEXTS[name] for name in needed if name not in given}
        wrong |= {name: f"{self.action} does not use this field." for name in given if name not in known}
        if splits and len(self.bundles) > 1:
            wrong["bundles"] = "Give only one bundle: a plan can split only one bundle."
        if splits and bool(self.positions) != (self.algorithm is SplitAlgorithm.POSITIONS):
            verb = "Only {} takes positions." if self.positions else "{} needs a position."
            wrong["positions"] = verb.format(SplitAlgorithm.POSITIONS)
        for bundle in self.bundles if splits else ():
            if HASH_RANGE_PATTERN.fullmatch(range_of(bundle)):  # else a pattern
                outside = [f"{at:#010x}" for at in self.positions if not HashRange.of_bundle(bundle).can_be_cut_at(at)]
                if outside:
                    wrong.setdefault("positions", f"Not inside {range_of(bundle)}: {', '.join(outside)}.")
        held = sorted({*self.overrule} - _ALLOWED_OVERRULES[self.action])
        if held:
            wrong["overrule"] = f"{self.action} cannot overrule {', '.join(held)}."
        if self.overrule and not self.reason:
            wrong["reason"] = "Give a reason for the overruled rules; it is recorded."
        return wrong

    @property
    def only_shows_plan(self) -> bool:
        return not self.plan and self.action is not Action.RELEASE

    @property
    def overruled_rules(self) -> frozenset[Overrule]:
        """Return the rules that do not apply to this request.

        An undo ignores the grace period of recently moved bundles. A drain's plan ignores the caps, so that
        it shows all bundles; the runs that drain the broker apply them.
        """
        always = {Action.UNDO: Overrule.GRACE_PERIOD, Action.DRAIN: Overrule.CAPS}
        return frozenset([*self.overrule, *filter(None, [always.get(self.action) if self.action else None])])

    def changed_fields(self, shown_request: PlanRequest) -> list[str]:
        given = [name for name in type(self).model_fields if getattr(self, name) and name not in ("plan", "reason")]
        return [name for name in given if getattr(self, name) != getattr(shown_request, name)]


class ManualPlanRecord(BaseModel):
    """The record of a manual plan.

    Attributes:
        by: the Airflow user who requested the plan, or approved a strategy's plan.
        approved_by, approved_because: who approved the plan in mode `approve`, and why; else empty.
        carries_out: hash of the shown plan that the run carries out; empty if there is none.
        scores: each source's and destination's scores before and after the moves, in percent, if scores
            are proportional to traffic.
        unknown: names from the request, or from the run to undo, that match no reported bundle.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    request: PlanRequest
    carries_out: str = ""
    approved_by: str = ""
    approved_because: str = ""
    scores: dict[str, tuple[float, float]] = {}
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def approval_text(self) -> str:
        why = f" ({self.approved_because})" if self.approved_because else ""
        return f"approved by {self.approved_by}{why}" if self.approved_by else ""


class DrainProgress(BaseModel):
    """The progress of a drain in one run; `stay` counts by reason the bundles that do not move.

    Attributes:
        bundles: number of bundles that the broker reports, even if they cannot move, plus those that moved to it too
            recently to be reported; None without a report.
        named: the first bundles that can never move: heartbeat and system bundles, and those without topics.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime
    by: str
    reason: str
    overrule: tuple[Overrule, ...] = ()
    bundles: int | None
    moving: int
    stay: dict[Reason, int] = {}
    named: tuple[str, ...] = ()

    @property
    def bundles_left(self) -> int:
        """Return the number of bundles that this plan does not move but a later plan could move."""
        return sum(count for why, count in self.stay.items() if why not in (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC))


def parse_form(values: Mapping[str, object]) -> PlanRequest:
    """Return the form's request. Raises SettingsError `wrong_setting`, with the wrong fields."""
    return parse_form_values(PlanRequest, values, "form")
