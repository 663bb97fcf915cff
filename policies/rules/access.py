"""Access rules: who can reach a machine, and what it may do."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from policies.facts import UNKNOWN, FirewallFacts, Known, MachineFacts, Opening, SpecFacts, Unknown
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from provisioner.workload.kinds import Listing, Whole

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_INTERNAL = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "fc00::/7", "::1/128")
)
_CLOUD_PLATFORM = ("https://www.googleapis.com/auth/cloud-platform", "cloud-platform")
_DEFAULT_ACCOUNT = re.compile(r"\d+-compute@developer\.gserviceaccount\.com")
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
            key,
            f"{cidr!r} is no range of addresses",
            "write one such as 203.0.113.7/32",
            identity=f"{key}={cidr}",
            stays=True,
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
    """The EC2 metadata service answers only requests with a token."""
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
        "The metadata service needs a token",
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
)
