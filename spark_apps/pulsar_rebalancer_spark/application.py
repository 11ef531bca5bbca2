"""The application that makes a plan: `spark-submit application.py --root ROOT --run RUN`.

In a source tree, PYTHONPATH must contain the folders include/ and spark_apps/.
"""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from pulsar_rebalancer_spark.session import end_with_process, session

_TURN = 0.0005
"""Python's thread switch interval, in seconds."""

_COLLECTED_AFTER = 1_000_000
"""Number of new objects after which Python's garbage collector runs."""


def main() -> int:
    # Otherwise each call that starts the session would wait until the other thread's turn ends.
    sys.setswitchinterval(_TURN)
    # Otherwise Python would scan all rows in the driver repeatedly, although none of them is garbage.
    gc.set_threshold(_COLLECTED_AFTER)
    with ThreadPoolExecutor(max_workers=1) as beside:
        begun = beside.submit(session)
        end_with_process(begun)
        try:
            # Imported while Java starts the session, because the import takes half a second.
            from pulsar_rebalancer_spark import rebalance

            return rebalance.main(sys.argv[1:], begun)
        finally:
            # An open session could block the end of the process, and a Spark Connect server would keep it for an hour.
            if begun.exception() is None:
                begun.result().stop()


if __name__ == "__main__":
    sys.exit(main())
