"""What a run costs, each figure measured beside what it is compared with."""
