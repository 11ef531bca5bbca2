"""The state kept between runs, and the rules that make every sample count exactly once."""
