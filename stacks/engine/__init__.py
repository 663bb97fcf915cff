"""Find, fetch or build the Pulumi CLI."""
