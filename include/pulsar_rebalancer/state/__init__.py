"""What is kept between runs, and the rules that make a sample count exactly once."""
