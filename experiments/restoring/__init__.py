"""Brokers that come back: AvgShedder with and without `restore_placement`."""
