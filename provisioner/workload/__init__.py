"""The workload spec: strict YAML with positions."""
