"""The sandbox cloud: a pretend account in one SQLite file."""
