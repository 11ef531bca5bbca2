"""The page of a cluster inside the Airflow UI: what `pulsar_rebalancer.overview` says, served and drawn."""
