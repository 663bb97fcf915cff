"""Clouds behind one protocol."""
