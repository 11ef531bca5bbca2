"""A cluster that behaves like Pulsar brokers under load (modular load manager), in process or over HTTP.

`scenario.build_cluster` makes a `cluster.Cluster`. `serve.serve` serves its brokers' admin REST API on loopback.
`python -m pulsar_simulator` runs a cluster as a separate process. `http`, `control`, `rest` and `serve` need Starlette
and uvicorn, which Airflow installs.
"""
