"""The tasks of a run, one module for each task."""

from __future__ import annotations

from pulsar_rebalancer_airflow.operators.approve import ApproveOperator, CarryOutApprovedOperator
from pulsar_rebalancer_airflow.operators.ask import QuestionsOperator
from pulsar_rebalancer_airflow.operators.by_hand import (
    CarryOutOperator,
    CollectForPlanOperator,
    FormOperator,
    PlanByHandOperator,
)
from pulsar_rebalancer_airflow.operators.collect import CollectOperator
from pulsar_rebalancer_airflow.operators.control import ControlOperator
from pulsar_rebalancer_airflow.operators.decide import DecideOperator
from pulsar_rebalancer_airflow.operators.gate import GateOperator
from pulsar_rebalancer_airflow.operators.maintain import MaintainOperator
from pulsar_rebalancer_airflow.operators.order import OrderOperator
from pulsar_rebalancer_airflow.operators.record import RecordOperator
from pulsar_rebalancer_airflow.operators.refuse import RefuseOperator
from pulsar_rebalancer_airflow.operators.replay import ReplayOperator
from pulsar_rebalancer_airflow.operators.report import ReportOperator
from pulsar_rebalancer_airflow.operators.roll import RollOperator
from pulsar_rebalancer_airflow.operators.split import SplitOperator
from pulsar_rebalancer_airflow.operators.unload import UnloadWaveOperator
from pulsar_rebalancer_airflow.operators.validate import ValidateOperator
from pulsar_rebalancer_airflow.operators.watch import WatchOperator

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
