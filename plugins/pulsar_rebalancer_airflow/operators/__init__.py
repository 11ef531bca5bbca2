"""The operators of all tasks."""

from __future__ import annotations

from pulsar_rebalancer_airflow.operators.approve import ApproveOperator, CarryOutApprovedOperator, QuestionsOperator
from pulsar_rebalancer_airflow.operators.by_hand import (
    CarryOutOperator,
    CollectForPlanOperator,
    FormOperator,
    PlanByHandOperator,
)
from pulsar_rebalancer_airflow.operators.collect import CollectOperator, ValidateOperator
from pulsar_rebalancer_airflow.operators.control import ControlOperator, OrderOperator
from pulsar_rebalancer_airflow.operators.gate import GateOperator, RecordOperator
from pulsar_rebalancer_airflow.operators.report import MaintainOperator, RefuseOperator, ReportOperator, WatchOperator
from pulsar_rebalancer_airflow.operators.roll import RollOperator
from pulsar_rebalancer_airflow.operators.spark_application import DecideOperator, ReplayOperator
from pulsar_rebalancer_airflow.operators.unload import SplitOperator, UnloadWaveOperator

__all__ = [
    "ApproveOperator",
    "CarryOutApprovedOperator",
    "CarryOutOperator",
    "CollectForPlanOperator",
    "CollectOperator",
    "ControlOperator",
    "DecideOperator",
    "FormOperator",
    "GateOperator",
    "MaintainOperator",
    "OrderOperator",
    "PlanByHandOperator",
    "QuestionsOperator",
    "RecordOperator",
    "RefuseOperator",
    "ReplayOperator",
    "ReportOperator",
    "RollOperator",
    "SplitOperator",
    "UnloadWaveOperator",
    "ValidateOperator",
    "WatchOperator",
]
