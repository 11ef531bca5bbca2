"""Freeze a namespace until a time: its bundles stay on their brokers."""

from collections.abc import Iterator

from pulsar_rebalancer.orders.order import Control, FormAction, GivenOrder, OrderKind, Situation, end_text, with_end

_SUBJECT, _PATTERN = "the namespace (tenant/namespace)", r"[^/\s]+/[^/\s]+"


def _freeze_orders(control: Control) -> Iterator[GivenOrder]:
    return (order for order in control.orders if order.action == "freeze")


def _freeze_texts(situation: Situation) -> Iterator[str]:
    for order in _freeze_orders(situation.control):
        if order.until:
            yield f"{order.subject} frozen {end_text(order.until, order.giver, situation.now)}"


FREEZE = OrderKind(
    actions=(
        FormAction(
            "freeze",
            "Freeze a namespace",
            "No bundle of the namespace is moved or split, even if its broker is drained or in a rolling restart.",
            until=True,
            subject=_SUBJECT,
            subject_pattern=_PATTERN,
            apply=with_end,
            button="Freeze",
            group="Bundles",
        ),
        FormAction(
            "unfreeze",
            "End a freeze",
            subject=_SUBJECT,
            subject_pattern=_PATTERN,
            apply=lambda orders, order: orders.get(Control).without_orders("freeze", subject=order.subject),
            button="Unfreeze",
            is_shown=lambda situation: any(_freeze_orders(situation.control)),
            propose_value=lambda situation: next(_freeze_orders(situation.control)).subject,
            group="Bundles",
        ),
    ),
    order_texts=_freeze_texts,
    kept_namespaces=lambda _, control: [order.subject for order in _freeze_orders(control)],
)
