"""The native provider plugin pulumi-resource-gpuprov."""
