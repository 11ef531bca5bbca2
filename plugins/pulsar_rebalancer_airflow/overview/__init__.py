"""A cluster's page in the Airflow UI, which shows the documents of `pulsar_rebalancer.show.page`."""
