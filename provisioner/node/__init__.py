"""What runs on the machine: the watcher, its dead man's switch, and the start of the workload."""
