"""How a workload is laid over GPUs."""

from __future__ import annotations

from provisioner.records import record
from provisioner.vocabulary import Sharding


@record(frozen=True, slots=True, order=True)
class Layout:
    """Parallel degrees. ``gpus`` = tensor x pipeline x data parallel x replicas.

    Serving copies are ``replicas`` (each of tensor x pipeline GPUs; ``data_parallel`` stays 1 unless the engine shares
    experts between ranks). A training has one replica of tensor x pipeline x data parallel GPUs, its states spread as
    ``sharding`` says.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    replicas: int = 1
    sharding: Sharding = Sharding.NONE

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one serving copy, or the training, spans."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def gpus(self) -> int:
        """GPUs of the whole workload."""
        return self.gpus_per_replica * self.replicas
