"""``workload.yaml`` version 1 as frozen models: attribute names are the keys, values are exact and unit-free.

Sizes are integer bytes, durations ``timedelta``, money ``Money``, counts ``int``; a key that allows ``auto`` (or ``off``)
keeps that word; an absent optional key is ``None``. The text after a field is what ``gpuprov schema`` tells editors about it.
``Workload`` objects come from ``provisioner.workload.load.load`` or ``Workload.from_document``, which also apply the rules
between keys and the defaults that depend on the task.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from provisioner.units import Money
from provisioner.vocabulary import (
    Attention,
    KvDtype,
    Objective,
    Optimizer,
    Pattern,
    Sharding,
    Task,
    TrainingMethod,
    TrainingPrecision,
)
from provisioner.workload.adapters import ADAPTER, Adapter
from provisioner.workload.kinds import Flag, Listing, Number, Table, Text, Whole, WordOr, WordOrPart, Words
from provisioner.workload.media import Audio, Image, TrainingImage, TrainingVideo, Video
from provisioner.workload.part import SpecPart
from provisioner.workload.patterns import (
    ARGUMENT,
    CIDR,
    CONFIG,
    ENGINE,
    ENVIRONMENT_VALUE,
    GPU_NAME,
    IMAGE,
    JSON_OBJECT,
    MODEL_ID,
    NAME,
    PLAIN_NAME,
    PROFILE,
    REGION,
    SOURCE,
    TAG_KEY,
    TAG_VALUE,
    VARIABLE,
    VERSION,
    WEIGHTS,
    SecretReference,
)
from provisioner.workload.quantities import (
    DURATION,
    MONTHLY_SIZE,
    SIZE,
    Count,
    EngineChoice,
    MoneyPer,
    ReplicaRange,
    Replicas,
    Work,
    WorkTotal,
)

Auto = Literal["auto"]
Off = Literal["off"]
Flagged = Annotated[bool, Flag()]
Natural = Annotated[int, Whole(1, 10**9)]
Degree = Annotated[int | Auto, WordOr(("auto",), Whole(1, 1024))]
Size = Annotated[int, SIZE]
MonthlySize = Annotated[int, MONTHLY_SIZE]
Duration = Annotated[timedelta, DURATION]
Name = Annotated[str, PLAIN_NAME]
Names = Annotated[tuple[str, ...], Listing(PLAIN_NAME)]
GpuNames = Annotated[tuple[str, ...], Listing(GPU_NAME)]
Arguments = Annotated[tuple[str, ...], Listing(ARGUMENT, unique=False)]


class Model(SpecPart):
    """What is run or trained. Exactly one of ``id``, ``config`` and ``shape`` is set."""

    id: Annotated[str, MODEL_ID] | None = None
    """Known model id or alias, such as meta-llama/Llama-3.1-8B-Instruct."""
    config: Annotated[dict[str, Any], CONFIG] | None = None
    """Path of the model's config.json, relative to this file."""
    shape: Annotated[dict[str, Any], JSON_OBJECT] | None = None
    """The model's dimensions, for one that is not known and has no config.json."""
    source: Annotated[str, SOURCE] | None = None
    """Where the machine fetches the weights from: hf://, s3:// or gs://."""
    source_region: Annotated[str, REGION] | None = None
    """Region of the bucket in source: a fetch from another region or cloud is in the bill."""
    adapters: Annotated[tuple[Adapter, ...], Listing(ADAPTER)] = ()
    """LoRA adapters that are served beside the base, or that a training starts from: addresses, or {source, rank, targets}."""
    weights: Annotated[str, WEIGHTS] = "auto"
    """Storage of the weights; auto = as published. With qlora nf4, whatever was published."""


class Targets(SpecPart):
    """What a serving copy should reach."""

    time_to_first_token: Duration | None = None
    """Longest wait for the first token."""
    tokens_per_second_per_request: Annotated[float, Number(1e6, "30")] | None = None
    """Slowest stream of one request."""
    requests_per_second: Annotated[float, Number(1e6, "5")] | None = None
    """Requests that all replicas together take."""


class Inputs(SpecPart):
    """What a request to a multimodal model carries; part of the context."""

    images: Annotated[int, Whole(0, 10_000)] | None = None
    """Images per request."""
    image_pixels: Natural | None = None
    """Pixels of one image."""
    audio_seconds: Annotated[float, Number(1e6, "30")] | None = None
    """Seconds of audio per request."""


class Inference(SpecPart):
    """How one replica serves."""

    engine: Annotated[EngineChoice, ENGINE] | None = None
    """Engine, and its version if that matters; default by the kind of model."""
    context_tokens: Natural | None = None
    """Input and output tokens of the longest request; default the model's limit or 8192, whichever is less."""
    concurrency: Annotated[int, Whole(1, 1_000_000)] = 1
    """Requests at once per replica."""
    kv_cache: Annotated[KvDtype, Words.of(KvDtype)] = KvDtype.AUTO
    """Storage of cached keys and values."""
    gpu_memory_fraction: Annotated[float | Auto, WordOr(("auto",), Number(1.0, "0.9"))] = "auto"
    """Share of a GPU's memory that the engine may take."""
    input_tokens: Natural | None = None
    """Input of a typical request: throughput only."""
    output_tokens: Natural | None = None
    """Output of a typical request: throughput only."""
    replicas: Annotated[int | Auto | ReplicaRange, Replicas()] = 1
    """Serving copies: a number, a range such as 1..4, or auto; default 1, auto with requests_per_second."""
    tensor_parallel: Degree = "auto"
    """GPUs that one layer is split over."""
    pipeline_parallel: Degree = "auto"
    """Groups of GPUs that the layers are dealt to."""
    targets: Targets | None = None
    """What a serving copy should reach."""
    inputs: Inputs | None = None
    """What a request to a multimodal model carries."""
    total: Annotated[WorkTotal, Work()] | None = None
    """The work of a batch, such as 5M tokens."""
    duration: Duration | None = None
    """How long a batch runs, instead of total."""
    image: Image | None = None
    """The image that a diffusion model makes."""
    video: Video | None = None
    """The clip that a video model makes."""
    audio: Audio | None = None
    """The audio that a model hears or makes."""
    offload: Annotated[Literal["none", "text-encoder", "model"], Words(("none", "text-encoder", "model"))] = "none"
    """What a diffusion pipeline keeps in host memory until it is needed."""


class Lora(SpecPart):
    """Low-rank adapters that are trained."""

    rank: Annotated[int, Whole(1, 16_384)] = 16
    """Rank of each adapter."""
    targets: Annotated[tuple[str, ...] | Literal["all-linear"], WordOr(("all-linear",), Listing(PLAIN_NAME))] = (
        "all-linear"
    )
    """Modules that get an adapter: all-linear, or a list such as [q_proj, v_proj]."""


class Checkpoint(SpecPart):
    """Checkpoints of a training."""

    every: Duration | None = None
    """Time between two checkpoints."""
    resumable: Flagged | None = None
    """Whether the training goes on from its last checkpoint."""
    hook: Arguments = ()
    """Command run on an interruption notice or a planned stop."""


class Training(SpecPart):
    """How a model is trained."""

    method: Annotated[TrainingMethod, Words.of(TrainingMethod)]
    """Which parameters are updated."""
    precision: Annotated[TrainingPrecision, Words.of(TrainingPrecision)] = TrainingPrecision.BF16
    """Number format; default bf16, bf16-mixed for pretrain and full."""
    optimizer: Annotated[Optimizer, Words.of(Optimizer)] = Optimizer.ADAMW
    """Optimizer whose state is kept."""
    sequence_tokens: Natural | None = None
    """Tokens of one sequence; required for language models."""
    micro_batch: Annotated[int, Whole(1, 1_000_000)] = 1
    """Sequences (or samples) at once per GPU."""
    gradient_checkpointing: Annotated[bool | Literal["selective"], WordOr(("selective",), Flag())] = True
    """Recompute activations instead of keeping them."""
    attention: Annotated[Attention, Words.of(Attention)] | None = None
    """Attention kernel; default flash where the GPU has it, else sdpa."""
    lora: Lora | None = None
    """Adapters of lora and qlora."""
    sharding: Annotated[Sharding, Words.of(Sharding)] = Sharding.AUTO
    """How states are spread over GPUs."""
    tokens: Annotated[int, Count()] | None = None
    """Tokens to train on, such as 2B: gives hours and cost."""
    duration: Duration | None = None
    """How long the training runs, instead of tokens."""
    checkpoint: Checkpoint | None = None
    """Checkpoints of the training."""
    image: TrainingImage | None = None
    """Images that a diffusion model trains on."""
    video: TrainingVideo | None = None
    """Clips that a video model trains on."""
    audio: Audio | None = None
    """Audio that a model trains on."""


class Storage(SpecPart):
    """Disks and traffic."""

    data: Size | None = None
    """Persistent disk; survives the instance."""
    checkpoints: Annotated[int | Auto, WordOr(("auto",), SIZE)] | None = None
    """Disk for checkpoints; auto = room for two."""
    shared: Annotated[int | Literal["auto", "none"], WordOr(("auto", "none"), SIZE)] = "auto"
    """File system shared by several machines; auto = none on one."""
    egress: MonthlySize = 0
    """Traffic to the internet, such as 200GB/month."""


class Placement(SpecPart):
    """Hard requirements on where and on what."""

    clouds: Annotated[tuple[str, ...], Listing(Words(("aws", "gcp")))] = ("aws", "gcp")
    """Clouds to choose from."""
    regions: Annotated[tuple[str, ...], Listing(REGION)] = ()
    """Regions to choose from; none named = all."""
    gpus: GpuNames = ()
    """GPUs to choose from, by class or exact name."""
    exclude_gpus: GpuNames = ()
    """GPUs not to choose."""
    instance_types: Names = ()
    """These instance types and no others."""
    max_gpus: Annotated[int, Whole(1, 100_000)] | None = None
    """Most GPUs of the whole workload."""
    capacity: Annotated[
        Literal["auto", "spot", "on-demand", "reserved"], Words(("auto", "spot", "on-demand", "reserved"))
    ] = "auto"
    """How capacity is bought."""
    max_price: Annotated[Money, MoneyPer("12 USD/h")] | None = None
    """Most for compute of the whole workload, per hour."""
    budget: Annotated[Money, MoneyPer("3000 USD/month", "400 USD/run")] | None = None
    """Most for the whole bill, per month or per run."""
    deadline: Duration | None = None
    """When the work must be done, from its start."""


class Idle(SpecPart):
    """When a machine counts as idle, and what then happens."""

    after: Annotated[timedelta | Auto | Off, WordOr(("auto", "off"), DURATION)] = "off"
    """Quiet time; default auto for bursty, off for steady workloads."""
    then: Annotated[Literal["stop", "terminate"], Words(("stop", "terminate"))] | None = None
    """Default stop where the market and the disks allow it, else terminate."""
    gpu_only: Flagged = False
    """Look at the GPU alone."""


class Stopped(SpecPart):
    """What happens to a stopped machine."""

    terminate_after: Duration = timedelta(days=7)
    """How long it may stay stopped."""


class Lifecycle(SpecPart):
    """How long machines live."""

    pattern: Annotated[Pattern, Words.of(Pattern)] = Pattern.STEADY
    """How a month is used; default steady for serve, else bursty."""
    hours_per_month: Annotated[float, Number(744, "120")] | None = None
    """Hours of use that a month is billed for."""
    idle: Idle = Field(default_factory=Idle.model_construct)
    """When a machine counts as idle, and what then happens."""
    stopped: Stopped = Field(default_factory=Stopped.model_construct)
    """What happens to a stopped machine."""
    max_lifetime: Annotated[timedelta | Off, WordOr(("off",), DURATION)] | None = None
    """From creation or the last start."""
    max_spend: Annotated[Money, MoneyPer("200 USD")] | None = None
    """A lifetime by money, from the price at creation."""
    lease: Duration | None = None
    """Must be renewed with keepalive, else the machine ends."""
    keep_failed: Flagged = False
    """Keep a machine whose start failed."""


class Ready(SpecPart):
    """How to see that the workload answers."""

    path: Annotated[str, Text("a path", "/health", r"/[!-~]*")] | None = None
    """Path of an HTTP request."""
    port: Annotated[int, Whole(1, 65_535)] | None = None
    """Port of the request."""


class Run(SpecPart):
    """What is started on the machine."""

    image: Annotated[str, IMAGE] | None = None
    """Container image."""
    command: Arguments = ()
    """Command and arguments, as a list."""
    env: Annotated[dict[str, str | SecretReference], Table(VARIABLE, ENVIRONMENT_VALUE)] = Field(default_factory=dict)
    """Environment; a secret is written as {secret: store:name}."""
    ports: Annotated[tuple[int, ...], Listing(Whole(1, 65_535))] = ()
    """Ports that the workload listens on."""
    ready: Ready | None = None
    """How to see that it answers."""
    data: Annotated[str, SOURCE] | None = None
    """Data that is fetched before the start."""


class Access(SpecPart):
    """Who may reach the machine."""

    cidrs: Annotated[tuple[str, ...], Listing(CIDR)] = ()
    """Networks that may connect; none = closed."""
    internet: Annotated[Literal["address", "nat"], Words(("address", "nat"))] | None = None
    """How machines reach the internet; default address, a public one each; nat = a NAT gateway of the subnets that are named."""


class Aws(SpecPart):
    """AWS objects to use instead of the ones found or made."""

    profile: Annotated[str, PROFILE] | None = None
    """Profile of the AWS configuration."""
    vpc: Name | None = None
    """Id of a VPC."""
    subnets: Names = ()
    """Ids of subnets."""
    instance_profile: Name | None = None
    """Name or ARN of an instance profile."""
    image: Name | None = None
    """Id of a machine image."""
    kms_key: Name | None = None
    """Key that encrypts the disks."""


class Gcp(SpecPart):
    """Google Cloud objects to use instead of the ones found or made."""

    project: Name | None = None
    """Id of the project."""
    network: Name | None = None
    """Name of a network."""
    subnetwork: Name | None = None
    """Name of a subnetwork."""
    service_account: Name | None = None
    """E-mail address of a service account."""
    image: Name | None = None
    """Machine image or image family."""


class Workload(SpecPart):
    """A whole spec."""

    version: Annotated[int, VERSION]
    """Version of this format."""
    name: Annotated[str, NAME]
    """Name of the workload, its stack and its tags."""
    task: Annotated[Task, Words.of(Task)]
    """What the workload does."""
    model: Model
    """What is run or trained."""
    inference: Inference | None = None
    """How one replica serves; with serve and batch."""
    training: Training | None = None
    """How the model is trained; with finetune and pretrain."""
    storage: Storage = Field(default_factory=Storage.model_construct)
    """Disks and traffic."""
    placement: Placement = Field(default_factory=Placement.model_construct)
    """Hard requirements on where and on what."""
    optimize: Annotated[Objective, Words.of(Objective)] = Objective.COST
    """What ranks the offers that hold the workload."""
    lifecycle: Lifecycle = Field(default_factory=Lifecycle.model_construct)
    """How long machines live."""
    run: Annotated[Run | Auto, WordOrPart(("auto",), Run)] | None = None
    """What is started; none = a bare machine."""
    access: Access = Field(default_factory=Access.model_construct)
    """Who may reach the machine."""
    aws: Aws | None = None
    """AWS objects to use."""
    gcp: Gcp | None = None
    """Google Cloud objects to use."""
    tags: Annotated[dict[str, str], Table(TAG_KEY, TAG_VALUE, length_max=40)] = Field(default_factory=dict)
    """Tags on everything that bills."""

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Workload":
        """The workload of a JSON document, as ``to_document`` writes it or as a spec file would hold it.

        Raises:
            SpecError: the document is no valid spec; ``where`` is the key.
        """
        from provisioner.workload.reading import workload_from_document

        return workload_from_document(document)

    def to_document(self) -> dict[str, Any]:
        """The normalised spec as JSON-able values: every default filled in, absent keys left out, one spelling per value."""
        from provisioner.workload.document import part_document

        return part_document(self)

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of the normalised spec: comments, key order and spellings of units do not count."""
        from provisioner.workload.document import document_digest

        return document_digest(self.to_document())
