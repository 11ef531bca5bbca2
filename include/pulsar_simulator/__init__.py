"""A cluster that behaves like Pulsar brokers under load (modular load manager), in process or over HTTP.

`scenario.build` makes a `cluster.Cluster`; `serve.running` gives it the brokers' admin REST API on loopback;
`python -m pulsar_simulator` runs one by itself.
Starlette and uvicorn, which `http`, `control`, `rest` and `serve` need, come with Airflow.
"""
