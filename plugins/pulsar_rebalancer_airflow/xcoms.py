"""Read XComs in Airflow's API server, the only process that imports this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.models.xcom import XComModel
from sqlalchemy import select

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def left_by(session: Session, dag_id: str, run_id: str, *, key: str, task: str) -> Any:
    """Return a task's XCom; None if there is none."""
    of_task = (XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.task_id == task, XComModel.key == key)
    left = session.scalars(select(XComModel).where(*of_task)).first()
    return None if left is None else XComModel.deserialize_value(left)
