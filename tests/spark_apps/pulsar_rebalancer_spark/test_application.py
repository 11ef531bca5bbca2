"""What the application's process does before it decides."""

from __future__ import annotations

import subprocess
import sys

SPARED = """
import sys
from pulsar_rebalancer_spark import application
application.spare_pandas()
import pyarrow as pa
assert pa.Table.from_pylist([{"a": 1.0}], schema=pa.schema({"a": pa.float64()})).to_pylist() == [{"a": 1.0}]
assert "pandas" not in sys.modules
import pandas
"""


def test_arrow_does_not_import_pandas_into_the_driver():
    subprocess.run([sys.executable, "-c", SPARED], check=True)
