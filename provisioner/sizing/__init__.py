"""Memory and speed of a model on a GPU: pure arithmetic on frozen inputs."""
