"""The chosen plan in the words of other tools: SkyPilot, dstack, Karpenter and Pulumi YAML."""
