"""The policy gate."""
