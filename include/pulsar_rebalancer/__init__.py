"""The code that balances a cluster, in plain Python: no Airflow, no Spark, no Great Expectations."""
