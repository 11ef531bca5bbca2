from __future__ import annotations

import tests.airflow_home  # noqa: F401
