"""The application that decides: `spark-submit application.py --root ROOT --run RUN [--run RUN ...]`.

With the wheel installed nothing else is needed; from a source tree PYTHONPATH names the folders include/ and
spark_apps/.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from pulsar_rebalancer_spark.session import session


def main() -> int:
    """Decide the runs that the command line names; returns its exit code."""
    with ThreadPoolExecutor(max_workers=1) as beside:
        begun = beside.submit(session)
        # Imported while Java makes the session: half a second.
        from pulsar_rebalancer_spark import rebalance

        return rebalance.main(sys.argv[1:], begun)


if __name__ == "__main__":
    sys.exit(main())
