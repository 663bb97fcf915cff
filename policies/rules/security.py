"""Security rules: who can reach a machine, what can be read from it, and what runs on it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from policies.facts import (
    UNKNOWN,
    Disk,
    DiskFacts,
    FirewallFacts,
    Known,
    MachineFacts,
    Opening,
    SpecFacts,
    Unknown,
)
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.secrets import Found, find_secret, find_secret_in_text
from provisioner.workload.kinds import Listing, Whole

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_INTERNAL = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "fc00::/7", "::1/128")
)
_DIGEST = re.compile(r".*@sha256:[0-9a-f]{64}")
_CLOUD_PLATFORM = ("https://www.googleapis.com/auth/cloud-platform", "cloud-platform")
_DEFAULT_ACCOUNT = re.compile(r"\d+-compute@developer\.gserviceaccount\.com")
_COMMIT = re.compile(r"[0-9a-f]{40}")
ADMIN_PORTS = (22, 2375, 3389, 5900, 8888)
"""SSH, the Docker API, remote desktop, VNC, Jupyter: each gives a shell or its like."""


def open_cidr(facts: SpecFacts | FirewallFacts, setting: Setting) -> Iterator[Outcome]:
    """Nothing is open to a range so wide that it is the internet."""
    if isinstance(facts, FirewallFacts):
        yield from _judge_openings(facts, setting)
        return
    cidrs = facts.read("access.cidrs")
    if cidrs is UNKNOWN:
        yield unknown("access.cidrs", "who may connect is not known yet", "write the networks in access.cidrs")
        return
    if not cidrs:
        yield passed("access.cidrs")
    for index, cidr in enumerate(cidrs):
        yield _judge_range(f"access.cidrs[{index}]", cidr, setting, "access.cidrs")


def _judge_openings(facts: FirewallFacts, setting: Setting) -> Iterator[Outcome]:
    if isinstance(facts.openings, Unknown):
        yield unknown("openings", f"what {facts.name} lets in is not known yet", "write the ranges as constants")
        return
    for opening in facts.openings:
        yield _judge_range(opening.key, opening.cidr, setting, facts.name)


def _judge_range(key: str, cidr: Known[str], setting: Setting, where: str) -> Outcome:
    if isinstance(cidr, Unknown):
        return unknown(
            key, f"a range that {where} lets in is not known yet", "write the range as a constant", identity=key
        )
    narrowest = {4: setting.parameters["widest_ipv4_prefix"], 6: setting.parameters["widest_ipv6_prefix"]}
    network = parse_network(cidr)
    if network is None:
        return unknown(
            key, f"{cidr!r} is no range of addresses", "write one such as 203.0.113.7/32", identity=f"{key}={cidr}"
        )
    limit = narrowest[network.version]
    if network.prefixlen >= limit or is_internal(network):
        return passed(key)
    whole = "the whole internet" if network.prefixlen == 0 else f"{network.num_addresses:,} addresses"
    return failed(
        key,
        f"{where} lets in {cidr}: {whole}",
        f"name the networks that need it, /{limit} or narrower (203.0.113.7/32), or none: `gpuprov connect` needs no open port",
        identity=f"{where}={cidr}",
    )


def is_internal(network: Network) -> bool:
    """Whether all addresses of a network are private ones (RFC 1918, RFC 6598, RFC 4193, loopback)."""
    return any(network.version == inner.version and network.subnet_of(inner) for inner in _INTERNAL)  # type: ignore[arg-type]


def parse_network(text: str) -> Network | None:
    """The network of a CIDR or a lone address, host bits ignored; ``None`` for anything else."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def open_admin_port(facts: FirewallFacts, setting: Setting) -> Iterator[Outcome]:
    """Ports that give a shell are not reachable from public addresses, however few."""
    if isinstance(facts.openings, Unknown):
        yield unknown("openings", f"what {facts.name} lets in is not known yet", "write the ranges as constants")
        return
    for opening in facts.openings:
        yield _judge_admin(facts.name, opening, setting.parameters["ports"])


def _judge_admin(name: str, opening: Opening, ports: tuple[int, ...]) -> Outcome:
    key = opening.key
    if isinstance(opening.ports, Unknown) or isinstance(opening.cidr, Unknown):
        return unknown(
            key, f"a range or port that {name} lets in is not known yet", "write both as constants", identity=key
        )
    network = parse_network(opening.cidr)
    hit = [port for port in ports if opening.ports is None or opening.ports[0] <= port <= opening.ports[1]]
    if not hit or (network is not None and is_internal(network)):
        return passed(key)
    return failed(
        key,
        f"{name} lets {opening.cidr} reach port {hit[0]}",
        f"close port {hit[0]}; `gpuprov connect` goes through SSM or IAP without an open port",
        identity=f"{opening.cidr}:{hit[0]}",
    )


def imdsv2(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """The EC2 metadata service answers only requests with a session token."""
    del setting
    if facts.cloud != "aws":
        return
    if facts.metadata_endpoint == "disabled":
        yield passed("metadata_endpoint")
        return
    if facts.metadata_tokens == "required":
        yield passed("metadata_tokens")
        return
    remedy = 'set metadata_options { http_tokens = "required" }'
    if isinstance(facts.metadata_tokens, Unknown) or facts.metadata_tokens is None:
        message = f"{facts.name} does not say whether the metadata service needs a token; image and account decide, and many allow IMDSv1"
        yield unknown("metadata_tokens", message, remedy, stays=facts.metadata_tokens is None)
        return
    message = f"{facts.name} lets any request read its metadata and credentials (IMDSv1): http_tokens is {facts.metadata_tokens}"
    yield failed("metadata_tokens", message, remedy)


def imds_hop_limit(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """Metadata answers do not travel further than a container on the machine."""
    limit: int = setting.parameters["max_hops"]
    if facts.cloud != "aws" or facts.metadata_hop_limit is None or facts.metadata_endpoint == "disabled":
        return
    if isinstance(facts.metadata_hop_limit, Unknown):
        yield unknown(
            "metadata_hop_limit",
            f"the hop limit of {facts.name} is not known yet",
            f"set http_put_response_hop_limit = {limit}",
        )
    elif facts.metadata_hop_limit > limit:
        message = f"metadata of {facts.name} may travel {facts.metadata_hop_limit} hops"
        yield failed(
            "metadata_hop_limit", message, f"set http_put_response_hop_limit = {limit}: enough for a bridged container"
        )
    else:
        yield passed("metadata_hop_limit")


def root_encryption(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """The disk that a machine boots from is encrypted."""
    del setting
    if isinstance(facts.disks, Unknown):
        yield unknown(
            "disks", f"whether the disks of {facts.name} are encrypted is not known yet", "set encrypted = true on each"
        )
        return
    for disk in facts.disks:
        if disk.role == "root":
            yield _judge_encryption(facts.name, disk)


def data_encryption(facts: MachineFacts | DiskFacts, setting: Setting) -> Iterator[Outcome]:
    """Disks for data and checkpoints are encrypted."""
    del setting
    disks: Known[tuple[Disk, ...]] = (facts.disk,) if isinstance(facts, DiskFacts) else facts.disks
    if isinstance(disks, Unknown):
        yield unknown(
            "disks", f"whether the disks of {facts.name} are encrypted is not known yet", "set encrypted = true on each"
        )
        return
    for disk in disks:
        if disk.role != "root":
            yield _judge_encryption(facts.name, disk)


def _judge_encryption(name: str, disk: Disk) -> Outcome:
    key = f"{disk.key}.encrypted"
    what = "root disk" if disk.role == "root" else "data disk"
    if isinstance(disk.encrypted, Unknown) or disk.encrypted is None:
        message = f"{name} does not say whether its {what} is encrypted; the account's default decides"
        return unknown(key, message, "set encrypted = true", identity=disk.key, stays=disk.encrypted is None)
    if disk.encrypted:
        return passed(key)
    return failed(key, f"the {what} of {name} is not encrypted", "set encrypted = true", identity=disk.key)


def customer_key(facts: MachineFacts | DiskFacts, setting: Setting) -> Iterator[Outcome]:
    """Disks are encrypted with a key that the organisation holds."""
    del setting
    disks: Known[tuple[Disk, ...]] = (facts.disk,) if isinstance(facts, DiskFacts) else facts.disks
    if isinstance(disks, Unknown):
        yield unknown("disks", f"the keys of the disks of {facts.name} are not known yet", "set kms_key_id on each")
        return
    for disk in disks:
        key = f"{disk.key}.customer_key"
        if isinstance(disk.customer_key, Unknown):
            yield unknown(
                key,
                f"the key of a disk of {facts.name} is not known yet",
                "set kms_key_id to a constant",
                identity=disk.key,
            )
        elif disk.customer_key:
            yield passed(key)
        else:
            yield failed(key, f"a disk of {facts.name} uses the provider's key", "set kms_key_id", identity=disk.key)


def secret_in_env(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """Environment and command hold references to secrets, never secrets."""
    del setting
    run = facts.read("run")
    entries = facts.read_entries("run.env") if run not in (None, "auto") else {}
    if isinstance(entries, Unknown):
        yield unknown("run.env", "the environment is not known yet", "write it in run.env")
        return
    for name, value in entries.items():
        yield _judge_variable(name, value)
    if run in (None, "auto"):
        return
    command = facts.read("run.command")
    if command is UNKNOWN:
        yield unknown("run.command", "the command is not known yet", "write it in run.command")
        return
    for index, argument in enumerate(command or ()):
        yield _judge_argument(f"run.command[{index}]", command, index, argument)


def _judge_variable(name: str, value: Any) -> Outcome:
    key = f"run.env.{name}"
    remedy = f"write {name}: {{secret: aws-secretsmanager:NAME}} or {{secret: gcp-secretmanager:NAME}}, and revoke the value that was shown"
    if value is UNKNOWN:
        return unknown(key, f"the value of {name} is not known yet", remedy, identity=key)
    if isinstance(value, str) and (found := find_secret(name, value)):
        return failed(key, f"{name} holds {found.what}", remedy, identity=key, hidden=found.values)
    return passed(key)


def _judge_argument(key: str, command: tuple[str, ...], index: int, argument: str) -> Outcome:
    before = command[index - 1] if index else ""
    name = before if before.startswith("-") and "=" not in before else ""
    found = find_secret_in_text(argument) or (find_secret(name, argument) if name else None)
    if found is None:
        return passed(key)
    remedy = "put the secret in run.env as {secret: aws-secretsmanager:NAME} and let the program read it there; revoke the value"
    return failed(
        key,
        f"argument {index + 1} of the command holds {found.what}",
        remedy,
        identity="run.command",
        hidden=found.values,
    )


def secret_in_user_data(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """User-data, start-up scripts and metadata hold no secret: every process on the machine can read them."""
    del setting
    remedy = "let the machine fetch the secret with its role from a secret store; revoke the value"
    if isinstance(facts.texts, Unknown):
        yield unknown("texts", f"the user-data of {facts.name} is not known yet", remedy)
        return
    for key, text in facts.texts.items():
        place = f"texts.{key}"
        known = text if isinstance(text, str) else ""
        found = find_secret_in_text(known) or find_secret(key, known)
        if key in facts.sensitive_texts:
            found = Found("a value that the program marks as secret", (known, *(found.values if found else ())))
        if found:
            message = f"{key} of {facts.name} holds {found.what}"
            yield failed(place, message, remedy, identity=key, hidden=found.values)
        elif isinstance(text, Unknown):
            yield unknown(place, f"{key} of {facts.name} is not known yet", remedy, identity=key)
        else:
            yield passed(place)


def secret_in_tags(facts: SpecFacts | MachineFacts | DiskFacts, setting: Setting) -> Iterator[Outcome]:
    """Tags hold no secret: anyone who may list machines can read them."""
    del setting
    tags = facts.tags
    remedy = "remove the tag and revoke the value"
    if isinstance(tags, Unknown):
        yield unknown("tags", f"the tags of {facts.name} are not known yet", "write them as constants")
        return
    for name, value in tags.items():
        if isinstance(value, Unknown):
            yield unknown(f"tags.{name}", f"the tag {name} is not known yet", remedy, identity=name)
        elif found := find_secret(name, value):
            yield failed(
                f"tags.{name}", f"the tag {name} holds {found.what}", remedy, identity=name, hidden=found.values
            )
        else:
            yield passed(f"tags.{name}")


def image_digest(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A container image is named by its digest, so that what was judged is what runs."""
    del setting
    run = facts.read("run")
    if run in (None, "auto"):
        return
    image = facts.read("run.image")
    if image is UNKNOWN:
        yield unknown("run.image", "the image is not known yet", "write it in run.image")
    elif image is not None and not _DIGEST.fullmatch(image):
        message = f"{image} may be another image tomorrow: it has no digest"
        yield failed(
            "run.image", message, f"write {image.partition('@')[0]}@sha256:..., from `docker buildx imagetools inspect`"
        )
    elif image is not None:
        yield passed("run.image")


def machine_image(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine image is named exactly, not by a family that moves."""
    del setting
    if facts.image is None:
        return
    if isinstance(facts.image, Unknown):
        yield unknown("image", f"the image of {facts.name} is looked up when it is made", "write the image's id")
    elif "/family/" in facts.image or facts.image.startswith("resolve:ssm:") or facts.image.endswith("-latest"):
        yield failed("image", f"{facts.image} names a moving image", "write the id of one image")
    else:
        yield passed("image")


def public_ip(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine has no public address of its own."""
    del setting
    if facts.public_ip is None:
        return
    remedy = "set associate_public_ip_address = false (aws), or leave access_config out (gcp)"
    if isinstance(facts.public_ip, Unknown):
        yield unknown("public_ip", f"{facts.name} leaves its public address to the subnet", remedy)
    elif facts.public_ip:
        yield failed("public_ip", f"{facts.name} gets a public address", remedy)
    else:
        yield passed("public_ip")


def broad_scopes(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """The project's default service account with all scopes does not run a workload."""
    del setting
    if facts.cloud != "gcp":
        return
    remedy = "give the machine a service account of its own with the rights it needs"
    if isinstance(facts.scopes, Unknown) or isinstance(facts.service_account, Unknown):
        yield unknown("service_account", f"the rights of {facts.name} are not known yet", remedy)
        return
    default = facts.service_account is None or bool(_DEFAULT_ACCOUNT.fullmatch(facts.service_account))
    if facts.scopes and default and any(scope in _CLOUD_PLATFORM for scope in facts.scopes):
        yield failed("service_account", f"{facts.name} may do all that the project's default account may", remedy)
    elif facts.scopes:
        yield passed("service_account")


def model_revision(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """Weights from a public hub are named by commit: a branch may change under a running fleet."""
    del setting
    source = facts.read("model.source")
    if source is None:
        return
    if source is UNKNOWN:
        yield unknown("model.source", "the source of the weights is not known yet", "write it in model.source")
        return
    if not source.startswith("hf://"):
        return
    revision = source.partition("@")[2]
    if _COMMIT.fullmatch(revision):
        yield passed("model.source")
    else:
        message = f"the weights come from {'the branch ' + revision if revision else 'the default branch'}"
        yield failed("model.source", message, "add @ and the full commit id of the revision that was tested")


RULES = (
    Rule(
        "open-cidr",
        "security",
        "No port is open to the internet",
        "A GPU machine with a port open to everyone is found by scanners within minutes; inference servers, notebooks and Ray heads have no password by default.",
        Severity.CRITICAL,
        (SpecFacts, FirewallFacts),
        open_cidr,
        parameters=(
            Parameter("widest_ipv4_prefix", Whole(1, 32), 16, "shortest IPv4 prefix of a public range that passes"),
            Parameter("widest_ipv6_prefix", Whole(1, 128), 32, "shortest IPv6 prefix of a public range that passes"),
        ),
    ),
    Rule(
        "open-admin-port",
        "security",
        "Ports that give a shell are closed to public addresses",
        "SSM and IAP reach a machine without an open port, so an open one only adds risk.",
        Severity.MEDIUM,
        (FirewallFacts,),
        open_admin_port,
        level=Level.ADVISORY,
        parameters=(Parameter("ports", Listing(Whole(1, 65535)), ADMIN_PORTS, "ports that give a shell"),),
    ),
    Rule(
        "imdsv2",
        "security",
        "The metadata service needs a session token",
        "With IMDSv1 a single forged request from a model server hands out the machine's credentials.",
        Severity.HIGH,
        (MachineFacts,),
        imdsv2,
    ),
    Rule(
        "imds-hop-limit",
        "security",
        "Metadata stays on the machine",
        "A high hop limit lets metadata answers leave through routed containers and proxies.",
        Severity.LOW,
        (MachineFacts,),
        imds_hop_limit,
        level=Level.ADVISORY,
        parameters=(Parameter("max_hops", Whole(1, 64), 2, "most hops that pass; a bridged container needs 2"),),
    ),
    Rule(
        "root-encryption",
        "security",
        "Root disks are encrypted",
        "Weights, caches and logs on a root disk outlive the machine in snapshots and returned hardware.",
        Severity.HIGH,
        (MachineFacts,),
        root_encryption,
    ),
    Rule(
        "data-encryption",
        "security",
        "Data disks are encrypted",
        "Training data and checkpoints are what a copied disk would give away.",
        Severity.HIGH,
        (MachineFacts, DiskFacts),
        data_encryption,
    ),
    Rule(
        "customer-key",
        "security",
        "Disks use a key of the organisation",
        "A key of one's own can be revoked and its use is logged.",
        Severity.LOW,
        (MachineFacts, DiskFacts),
        customer_key,
        level=Level.DISABLED,
    ),
    Rule(
        "secret-in-env",
        "security",
        "Environment and command hold no secret",
        "Specs are committed and plans are pasted into reviews: a secret in one is a leaked secret.",
        Severity.CRITICAL,
        (SpecFacts,),
        secret_in_env,
        waivable=False,
    ),
    Rule(
        "secret-in-user-data",
        "security",
        "User-data and metadata hold no secret",
        "Every process on the machine and everyone who may describe it can read them.",
        Severity.CRITICAL,
        (MachineFacts,),
        secret_in_user_data,
        waivable=False,
    ),
    Rule(
        "secret-in-tags",
        "security",
        "Tags hold no secret",
        "Tags show up in bills, inventories and logs.",
        Severity.CRITICAL,
        (SpecFacts, MachineFacts, DiskFacts),
        secret_in_tags,
        waivable=False,
    ),
    Rule(
        "image-digest",
        "security",
        "Container images are pinned by digest",
        "A tag can be moved: the image that was reviewed is not the one that runs.",
        Severity.MEDIUM,
        (SpecFacts,),
        image_digest,
    ),
    Rule(
        "machine-image",
        "security",
        "Machine images are named exactly",
        "A moving image changes driver and CUDA versions under a workload.",
        Severity.LOW,
        (MachineFacts,),
        machine_image,
        level=Level.ADVISORY,
    ),
    Rule(
        "public-ip",
        "security",
        "Machines have no public address",
        "SSM and IAP need none, and each one costs money by the hour.",
        Severity.LOW,
        (MachineFacts,),
        public_ip,
        level=Level.ADVISORY,
    ),
    Rule(
        "broad-scopes",
        "security",
        "No default service account with all scopes",
        "The default account may often edit the whole project; a model server needs next to nothing.",
        Severity.MEDIUM,
        (MachineFacts,),
        broad_scopes,
        level=Level.ADVISORY,
    ),
    Rule(
        "model-revision",
        "security",
        "Weights are named by commit",
        "A branch on a hub can be changed by its owner, or by whoever took the owner's account.",
        Severity.LOW,
        (SpecFacts,),
        model_revision,
        level=Level.ADVISORY,
    ),
)
