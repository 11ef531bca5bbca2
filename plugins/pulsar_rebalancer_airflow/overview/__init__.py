"""The page of a cluster inside the Airflow UI: the models of `pulsar_rebalancer.show.page`, served and drawn."""
