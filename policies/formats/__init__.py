"""Reports of the gate, one format a file."""
