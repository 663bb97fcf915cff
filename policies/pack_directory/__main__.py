"""What Pulumi's language host for Python runs in this directory: the same analyzer as ``gpuprov-policy``."""

from policies.pack import main

main([])
