"""The code that balances a cluster, in plain Python, without Airflow, Spark or Great Expectations."""
