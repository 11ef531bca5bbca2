"""The page of a cluster inside the Airflow UI: what `pulsar_rebalancer.show.page` says, served and drawn."""
