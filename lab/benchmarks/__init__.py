"""What a run costs, each value next to what it is compared with."""
