"""Rules: pure functions over facts, one family a file."""
