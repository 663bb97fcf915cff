"""What every target needs of a plan: offers in order, the command, its environment, disks and ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from provisioner.errors import NothingFits
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.units import GIB
from provisioner.workload.spec import Run, Workload

SERVER_PORTS = {"vllm": 8000, "sglang.launch_server": 30000, "trtllm-serve": 8000, "llama-server": 8080}
"""Port that a server listens on where its command does not say otherwise, by the word that starts it.

Source: the defaults in the command lines of vLLM, SGLang (``python3 -m sglang.launch_server``), TensorRT-LLM and llama.cpp.
"""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """A plan reduced to what other tools can take."""

    workload: Workload
    plan: Plan
    choice: PlannedOffer
    offers: tuple[PlannedOffer, ...]
    """The choice and its failover offers, in the order in which they are tried."""

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.workload.name

    @property
    def argv(self) -> tuple[str, ...]:
        """The command to start; empty where neither the spec nor the plan has one."""
        return self.plan.launch_argv

    @property
    def run(self) -> Run | None:
        """The spec's own ``run``, ``None`` where it has none or leaves it to the planned engine."""
        return self.workload.run if isinstance(self.workload.run, Run) else None

    @property
    def image(self) -> str | None:
        """Container image of the spec."""
        return self.run.image if self.run else None

    @property
    def env(self) -> dict[str, str]:
        """Plain environment: the plan's own and the spec's; secrets are apart."""
        own = self.run.env if self.run else {}
        return dict(self.plan.launch_env) | {key: value for key, value in own.items() if isinstance(value, str)}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Variables whose values the spec takes from a secret store."""
        own = self.run.env if self.run else {}
        return tuple(key for key, value in own.items() if not isinstance(value, str))

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports that the workload listens on."""
        if self.run and self.run.ports:
            return self.run.ports
        default = next((SERVER_PORTS[word] for word in self.argv if word in SERVER_PORTS), None)
        if self.workload.task.is_training or default is None:
            return ()
        stated = self.argv[self.argv.index("--port") + 1 :][:1] if "--port" in self.argv else ()
        return (int(stated[0]) if stated and stated[0].isdecimal() else default,)

    @property
    def ready_path(self) -> str:
        """Path of the probe that says whether the server answers."""
        ready = self.run.ready if self.run else None
        return (ready.path if ready else None) or "/health"

    @property
    def gpu_count(self) -> int | float:
        """GPUs of one machine; a share of one for a fractional type."""
        count = self.choice.gpus_per_instance
        return int(count) if float(count).is_integer() else count

    @property
    def disk_gib(self) -> int:
        """Disk of one machine, in GiB rounded up: root, data and checkpoints together."""
        kinds = ("root", "data", "checkpoints")
        size = sum(item.size_bytes for item in self.plan.storage if item.kind in kinds)
        return -(-size // GIB)

    @property
    def idle_after(self) -> timedelta | None:
        """The idle time that the spec states; ``None`` where it states none or leaves it to gpuprov."""
        after = self.workload.lifecycle.idle.after
        return after if isinstance(after, timedelta) else None

    @property
    def max_lifetime(self) -> timedelta | None:
        """The lifetime that the spec states."""
        lifetime = self.workload.lifecycle.max_lifetime
        return lifetime if isinstance(lifetime, timedelta) else None


def job_of(plan: Plan, workload: Workload) -> ExportJob:
    """The job of a plan.

    Raises:
        NothingFits: the plan has no choice.
    """
    if plan.choice is None:
        raise NothingFits(f"nothing fits {workload.name}", remedy=plan.closest[0] if plan.closest else None)
    offers = {offer.key: offer for offer in (plan.choice, *plan.failover)}
    return ExportJob(workload, plan, plan.choice, tuple(offers.values()))


def general_notes(job: ExportJob) -> list[str]:
    """What no target takes over from the spec, in words for the person who uses the file."""
    notes = []
    lifecycle, placement = job.workload.lifecycle, job.workload.placement
    if job.workload.task.is_training and not job.argv:
        notes.append("the spec has no run.command: add the command that trains")
    elif not job.argv:
        notes.append("the planned engine is a library of your own program: add the command that starts it")
    if placement.budget is not None:
        notes.append(f"placement.budget ({placement.budget}) is not watched there")
    if lifecycle.max_spend is not None:
        notes.append(f"lifecycle.max_spend ({lifecycle.max_spend}) is not watched there")
    if lifecycle.lease is not None:
        notes.append("lifecycle.lease has no counterpart there")
    if job.workload.access.cidrs:
        notes.append("access.cidrs is not carried over: open ports follow the rules of that tool")
    return notes
