"""The application that decides: `spark-submit application.py --root ROOT --run RUN [--run RUN ...]`.

With the wheel installed nothing else is needed; from a source tree PYTHONPATH names the folders include/ and
spark_apps/.
"""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from pulsar_rebalancer_spark.session import end_with_process, release_all, session

_TURN = 0.0005
"""Seconds that a thread of Python keeps its turn while another waits."""

_COLLECTED_AFTER = 1_000_000
"""Objects that are made before Python looks for garbage."""


def main() -> int:
    """Decide the runs that the command line names; returns its exit code."""
    # Each call that starts the session would otherwise wait until the other thread's turn ends.
    sys.setswitchinterval(_TURN)
    # Otherwise Python would scan all rows of the driver again and again, and none of them is garbage.
    gc.set_threshold(_COLLECTED_AFTER)
    end_with_process()
    with ThreadPoolExecutor(max_workers=1) as beside:
        begun = beside.submit(session)
        try:
            # Imported while Java makes the session: half a second.
            from pulsar_rebalancer_spark import rebalance

            return rebalance.main(sys.argv[1:], begun)
        finally:
            release_all()
            # What ends early, such as a wrong argument, leaves no session.
            if begun.exception() is None:
                begun.result().stop()


if __name__ == "__main__":
    sys.exit(main())
