"""What brokers can serve that is wrong, and what a run makes of it: the rows of docs/reference/bad-input.md.

Rows are plain data: the test serves each over HTTP with the simulation's fault switches to `collect`.
"""

from dataclasses import dataclass, field
from typing import Any

ALL = "all"
"""Every broker."""

ONE = "one"
"""The hottest broker: it has hits, which must neither be lost nor counted on by a fault."""

OTHERS = "others"
"""Every broker but the hottest one."""

COLDEST = "coldest"
"""The empty broker: it would be the destination of the hottest one."""

RESTART = "restart"
"""No switch: the broker's process is killed and starts anew."""

COLLECT = "fails in `collect`"
BLOCKED = "fails in `validate`"
HELD = "decides, the gate stays closed"
PROCEEDS = "proceeds"
UNLOAD = "`unload` fails, the bundle stays"


@dataclass(frozen=True)
class Row:
    """One kind of bad input.

    Attributes:
        served: what the brokers serve.
        faults: switches of the simulation, or `RESTART`: kind, which brokers, further attributes.
        ends: outcome of the run.
        reason: reason code that names it; empty when it is normal.
        effect: of that reason in this place; empty when it is normal.
        cause: reason code behind it, of the request that failed.
        detail: beginning of the value or text that is shown.
        bundle: whether a bundle, and not a broker, is concerned.
        connection: changes to it: `answer_timeout_seconds`; `token`, the name of another one; or `credentials`, a
            kind that `token_issuer.bad_credentials` knows.
        also: reason codes of warnings that come with it.
    """

    served: str
    faults: tuple[tuple[str, str, dict[str, Any]], ...]
    ends: str = PROCEEDS
    reason: str = ""
    effect: str = ""
    cause: str = ""
    detail: str = ""
    bundle: bool = False
    connection: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    @property
    def does(self) -> str:
        left_out = "leaves the bundle out" if self.bundle else "leaves the broker out"
        return {"quarantine": left_out, "warn": "warns"}.get(self.effect, self.ends)


def _fault(kind: str, who: str = ONE, **more: Any) -> tuple[tuple[str, str, dict[str, Any]], ...]:
    return ((kind, who, more),)


def _no_report(served: str, faults: tuple[tuple[str, str, dict[str, Any]], ...], cause: str, **more: Any) -> Row:
    return Row(served, faults, PROCEEDS, "report_missing", "quarantine", cause, f"error {cause}", **more)


def _left_out(
    served: str, faults: tuple[tuple[str, str, dict[str, Any]], ...], reason: str, detail: str, *also: str
) -> Row:
    return Row(served, faults, PROCEEDS, reason, "quarantine", detail=detail, also=also)


def _warned(served: str, faults: tuple[tuple[str, str, dict[str, Any]], ...], reason: str, detail: str) -> Row:
    return Row(served, faults, PROCEEDS, reason, "warn", detail=detail)


def _refused(served: str, faults: tuple[tuple[str, str, dict[str, Any]], ...], reason: str, **more: Any) -> Row:
    return Row(served, faults, COLLECT, reason, "block", **more)


def _odd(served: str, name: str) -> Row:
    faults = _fault("odd_bundle", target=name)
    return Row(served, faults, PROCEEDS, "bad_value", "quarantine", detail="bundle ", bundle=True)


_LIST = "/admin/v2/brokers"
_MARKUP = "acme/\"'><script>alert(1)</script>/0x00000000_0xffffffff"
_SHEDDING = {"loadBalancerSheddingEnabled": "true"}
_EVEN = {"loadBalancerDistributeBundlesEvenlyEnabled": "true"}
_LOW = {"loadBalancerAvgShedderLowThreshold": "25"}

ROWS = (
    # answers that do not come
    _no_report("a broker refuses connections", _fault("dead"), "unreachable"),
    _no_report("a broker resets every connection", _fault("reset", path=""), "unreachable"),
    _no_report(
        "a broker accepts the connection and never answers",
        _fault("silent"),
        "timeout",
        connection={"answer_timeout_seconds": 1},
    ),
    _no_report(
        "a broker's report comes later than the time-out",
        _fault("slow", amount=9, path="/load-report"),
        "timeout",
        connection={"answer_timeout_seconds": 1},
    ),
    Row("a broker answers slowly, within the time-out", _fault("slow", amount=0.3)),
    _refused("no broker accepts connections", _fault("dead", ALL), "unreachable"),
    # reports
    Row("a report written 15 minutes ago, the brokers' own maximum", _fault("stale_last_update", amount=900)),
    _left_out(
        "a report older than the brokers' own maximum",
        _fault("stale_last_update", amount=1000),
        "bad_report_time",
        "report_age_seconds 1",
    ),
    _left_out("a broker's clock is an hour ahead", _fault("future_clock"), "bad_report_time", "report_age_seconds -3"),
    _left_out(
        "a broker's clock is an hour behind", _fault("stale_last_update"), "bad_report_time", "report_age_seconds 3"
    ),
    Row(
        "the workers' clock is an hour behind that of all brokers",
        _fault("future_clock", ALL),
        BLOCKED,
        "too_many_quarantined",
        "block",
        detail="4 brokers quarantined, limit 2",
    ),
    _left_out('CPU usage is "NaN"', _fault("nan_usage"), "bad_value", "cpu_usage missing"),
    _left_out("CPU usage is NaN without quotes", _fault("bare_nan"), "bad_value", "cpu_usage missing"),
    _left_out("CPU is missing", _fault("missing_field"), "bad_value", "cpu_usage missing, cpu_limit missing"),
    _left_out("CPU usage is negative", _fault("negative_usage"), "bad_value", "cpu_usage -1"),
    _warned("CPU usage is 1.8 times its limit", _fault("over_limit", amount=1.8), "doubtful_limit", "cpu_percent 180"),
    _left_out(
        "CPU usage is three times its limit", _fault("over_limit"), "load_in_doubt", "cpu_usage ", "doubtful_limit"
    ),
    _left_out(
        "CPU usage beyond any machine", _fault("over_limit", amount=1e30), "bad_value", "cpu_usage ", "doubtful_limit"
    ),
    _left_out("CPU has no limit", _fault("zero_limit", target="cpu"), "load_in_doubt", "cpu_usage "),
    _left_out(
        "the limit of a network card is wrong, and nothing outranks it",
        _fault("over_limit", target="bandwidthIn"),
        "load_in_doubt",
        "deciding_resource bandwidth_in, deciding_percent 300",
        "doubtful_limit",
    ),
    _warned("the limit of the network cards is zero", _fault("zero_limit"), "doubtful_limit", "bandwidth_in_limit 0"),
    _left_out(
        "a broker has just started: it looks idle, having measured nothing",
        _fault(RESTART, COLDEST),
        "just_started",
        "host_samples ",
    ),
    _no_report("a report without its bundles", _fault("missing_field", target="lastStats"), "bad_answer"),
    _no_report("a proxy gives another broker's report", _fault("wrong_broker"), "wrong_broker"),
    _no_report("the report is not JSON", _fault("garbage"), "bad_answer"),
    _no_report("half a JSON document", _fault("half_json"), "bad_answer"),
    _no_report("an answer of 100 MB", _fault("huge_answer", amount=100 * 1024 * 1024), "bad_answer"),
    # bundles
    Row(
        "a bundle's message rate is negative",
        _fault("negative_rate"),
        PROCEEDS,
        "bad_value",
        "quarantine",
        detail="msg_rate_in -",
        bundle=True,
    ),
    Row(
        "a bundle has more producers and consumers than any broker, together more than 64 bits hold",
        _fault("huge_count"),
        PROCEEDS,
        "bad_value",
        "quarantine",
        detail="producers 4.6",
        bundle=True,
    ),
    _left_out(
        "a broker's bundles have negative message rates",
        _fault("negative_rate", amount=1000),
        "traffic_in_doubt",
        "left-out bundles carry 100% of the broker's traffic",
        "bad_value",
    ),
    Row(
        "two brokers own a bundle, normal for one interval after a move",
        _fault("two_owners", bundle="of another"),
        PROCEEDS,
        "two_owners",
        "quarantine",
        detail="broker ",
        bundle=True,
    ),
    _warned(
        "a broker's traffic is not the sum of its bundles'",
        _fault("unaccounted"),
        "sums_disagree",
        "unaccounted_percent 50",
    ),
    _odd("a namespace's name holds quotes and markup", _MARKUP),
    _odd("a namespace's name holds slashes", "acme/a/b/../../c/0x00000000_0xffffffff"),
    # the cluster
    _warned("a broker is listed twice", _fault("listed_twice"), "listed_twice", "listings 2"),
    Row("no broker is listed", _fault("not_listed", ALL), BLOCKED, "too_few_brokers", "block", detail="0 of 0"),
    Row("one broker is listed", _fault("not_listed", OTHERS), BLOCKED, "too_few_brokers", "block", detail="1 of 1"),
    Row(
        "Pulsar's own shedding is on",
        _fault("other_configuration", values=_SHEDDING),
        HELD,
        "builtin_shedding_on",
        "hold",
        detail="builtin_shedding True",
    ),
    _warned(
        "even distribution is on",
        _fault("other_configuration", ALL, values=_EVEN),
        "not_recommended",
        "even_distribution True",
    ),
    _warned(
        "brokers disagree on their configuration",
        _fault("other_configuration", values=_LOW),
        "brokers_disagree",
        "settings_in_disagreement loadBalancerAvgShedderLowThreshold",
    ),
    _refused("a load manager without reports: `null`", _fault("null_answer", ALL), "no_load_report"),
    _refused("a load manager without reports: 500", _fault("error_500", ALL), "no_load_report"),
    _no_report("one broker has a load manager without reports", _fault("null_answer"), "no_load_report"),
    _refused(
        "the configuration does not say whether Pulsar sheds",
        _fault("other_configuration", ALL, values={"loadBalancerSheddingEnabled": ""}),
        "bad_answer",
    ),
    # credentials
    _refused("401 with a page: unknown credentials", _fault("unauthorized", ALL), "unauthorized"),
    _refused("401 with a reason: a role without the right", (), "forbidden", connection={"token": "user_token"}),
    _refused("403", _fault("forbidden", ALL), "forbidden"),
    _no_report("one broker refuses the credentials", _fault("unauthorized", path="/load-report"), "unauthorized"),
    _refused("the issuer of tokens is down", (), "issuer_unavailable", connection={"credentials": "issuer down"}),
    _refused(
        "the issuer refuses the client's secret, which has expired",
        (),
        "issuer_refused",
        connection={"credentials": "expired secret"},
    ),
    _refused(
        "401 for tokens that the issuer has just issued: a wrong audience",
        (),
        "unauthorized",
        connection={"credentials": "wrong audience"},
    ),
    _refused(
        "the credentials file is missing", (), "credentials_file", connection={"credentials": "no credentials file"}
    ),
    _refused("the token file is empty", (), "credentials_file", connection={"credentials": "empty token file"}),
    _refused(
        "401 for the token of a token file that is not replaced",
        (),
        "unauthorized",
        connection={"credentials": "expired token file"},
    ),
    # redirects
    _refused("307 in a circle, for the list of brokers", _fault("redirect_circle", ALL, path=_LIST), "bad_answer"),
    _refused(
        "307 to a dead broker, for the list of brokers",
        (*_fault("redirect_to_stranger", OTHERS, path=_LIST, target="the hottest"), *_fault("dead")),
        "unreachable",
    ),
    _refused(
        "307 to a stranger, for the list of brokers", _fault("redirect_to_stranger", ALL, path=_LIST), "foreign_address"
    ),
    _no_report("307 for a report", _fault("redirect_circle", path="/load-report"), "bad_answer"),
    Row("307 in a circle, for an unload", _fault("redirect_circle", ALL, path="/unload"), UNLOAD, "bad_answer"),
    Row(
        "307 to a stranger, for an unload",
        _fault("redirect_to_stranger", ALL, path="/unload"),
        UNLOAD,
        "foreign_address",
    ),
)


def table() -> str:
    """The rows in Markdown, those of the same reason and effect together."""
    lines = ["| reason code | what a run does | what is served |", "| --- | --- | --- |"]
    served: dict[tuple[str, str], list[str]] = {}
    for row in ROWS:
        served.setdefault((f"`{row.reason}`" if row.reason else "none", row.does), []).append(row.served)
    lines += [f"| {code} | {does} | {'; '.join(kinds)} |" for (code, does), kinds in served.items()]
    return "\n".join(lines)
