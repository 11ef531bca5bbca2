"""The state stored between runs, and the rules by which every sample counts exactly once."""
