#!/usr/bin/env bash
# Installs the wheels with the lowest, then with the newest versions that their ranges allow, and runs tests with them.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$PWD/.venv/bin/uv
.venv/bin/python scripts/release.py
for resolution in ${1:-lowest-direct highest}; do
  folder=.cache/versions/$resolution
  rm -rf "$folder"
  "$uv" venv --quiet --python .venv/bin/python "$folder"
  "$uv" pip install --quiet --python "$folder/bin/python" --resolution "$resolution" --find-links dist \
    "pulsar-rebalancer[alerts,extensible,simulator]" pytest hypothesis cryptography
  printf 'versions: %s\n' "$resolution"
  "$uv" pip freeze --python "$folder/bin/python" | grep -E '^(apache-airflow|pyspark|great|pandas|numpy|pyarrow|pydantic|httpx|httpcore|msgspec)[^ ]*=='
  # Packages come from the wheels: only the tests, and what they bring, from here.
  PATH=$PWD/$folder/bin:$PATH "$folder/bin/python" -m pytest --quiet -p no:cacheprovider --override-ini pythonpath=. \
    tests/include tests/dags tests/expectations tests/plugins/pulsar_rebalancer_airflow/{hooks,operators,validation} \
    tests/spark_apps/pulsar_rebalancer_spark/test_rebalance.py
done
