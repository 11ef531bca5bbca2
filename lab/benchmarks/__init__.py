"""What a run costs, each figure next to what it is compared with."""
