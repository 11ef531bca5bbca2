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
  # From the sources: to uv, what a wheel requires is not direct, and it would take the newest.
  "$uv" pip compile --quiet --no-annotate --no-header --python "$folder/bin/python" --resolution "$resolution" \
    --extra alerts --extra extensible --excludes deploy/built_here.txt \
    pyproject.toml include/pulsar_{rebalancer,simulator}/pyproject.toml --output-file "$folder/versions.txt"
  "$uv" pip install --quiet --python "$folder/bin/python" -r "$folder/versions.txt" \
    pytest hypothesis cryptography oauthlib promql-parser
  "$uv" pip install --quiet --python "$folder/bin/python" --no-deps dist/*.whl
  "$uv" pip check --python "$folder/bin/python"
  printf 'versions: %s\n' "$resolution"
  grep -E '^(apache-airflow|pyspark|great|pandas|numpy|pyarrow|pydantic|httpx|msgspec)[^ ]*==' "$folder/versions.txt"
  # Packages come from the wheels: only the tests, and what they bring, from here.
  PATH=$PWD/$folder/bin:$PATH "$folder/bin/python" -m pytest --quiet -p no:cacheprovider --override-ini pythonpath=. \
    tests/include tests/dags tests/expectations tests/plugins/pulsar_rebalancer_airflow/{test_hooks.py,operators,validation} \
    tests/spark_apps/pulsar_rebalancer_spark/test_rebalance.py
done
