"""Pulumi: engine, provider plugin, program and deployment."""
