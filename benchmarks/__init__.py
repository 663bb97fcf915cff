"""Measurements of the project's own claims, and the tools that make its bundled data."""
