"""The state stored between runs, and the rules that make every sample count exactly once."""
