"""Workload x offers -> plan."""
