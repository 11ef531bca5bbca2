"""Refuse a wrong form before Airflow starts a run for it, whether the page, Airflow's UI or a script sends it.

The DAGs check their forms again, for runs that are not started through the REST API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow.options import BY_HAND_DAG, CONTROL_DAG, REBALANCE_DAG, ROLL_DAG

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TRIGGER = re.compile(r"/api/v2/dags/([^/]+)/dagRuns/?$")

_LONGEST = 1 << 20
"""Longer requests are left to Airflow and to the DAG's own check, in bytes."""


class FormGuard:
    """ASGI middleware that answers 422 to a request for a run with a wrong form, with a sentence for each field."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trigger = scope["type"] == "http" and scope["method"] == "POST" and _TRIGGER.search(scope["path"])
        if not trigger or not trigger[1].startswith((BY_HAND_DAG, CONTROL_DAG, REBALANCE_DAG, ROLL_DAG)):
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []
        while sum(len(message.get("body", b"")) for message in messages) <= _LONGEST:
            messages.append(await receive())
            if not messages[-1].get("more_body"):
                break
        body = b"".join(message.get("body", b"") for message in messages)
        fields = wrong_fields(trigger[1], body) if len(body) <= _LONGEST else {}
        if fields:
            await self._refuse(fields, scope, receive, send)
            return

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, again, send)

    async def _refuse(self, fields: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import JSONResponse  # Airflow loads plugins in every process

        allowed = False

        async def no_form() -> Message:
            return {"type": "http.request", "body": b"[]"}

        async def pass_on(message: Message) -> None:
            nonlocal allowed
            allowed = allowed or message.get("status") == 422
            if not allowed:
                await send(message)

        # Airflow first decides whether the user may start a run: only then does it refuse a body that is no object.
        await self.app(scope, no_form, pass_on)
        if allowed:
            said = {"detail": " ".join(f"{name}: {sentence}" for name, sentence in fields.items()), "fields": fields}
            await JSONResponse(said, 422)(scope, receive, send)


def wrong_fields(dag_id: str, body: bytes) -> Mapping[str, str]:
    """Return a sentence for each wrong field of the form in a request for a run; empty if Airflow has to judge it."""
    try:
        conf = json.loads(body).get("conf") or {}
        parse = next(parse for prefix, parse in _forms().items() if dag_id.startswith(prefix))
        parse(dict(conf))
    except SettingsError as error:
        return error.fields
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}
    return {}


@cache
def _forms() -> dict[str, Callable[[Mapping[str, object]], object]]:
    from pulsar_rebalancer.config.clusters_file import parse_params
    from pulsar_rebalancer.orders.in_force import parse_control_form
    from pulsar_rebalancer.orders.roll_document import parse_roll_form
    from pulsar_rebalancer.run.request import parse_form

    return {
        BY_HAND_DAG: parse_form,
        CONTROL_DAG: parse_control_form,
        REBALANCE_DAG: parse_params,
        ROLL_DAG: parse_roll_form,
    }
