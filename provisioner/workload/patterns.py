"""Texts of a spec that follow a rule of their own: names, addresses, model ids, weight formats, secrets, networks."""

from __future__ import annotations

import math
import re
from typing import Any

from provisioner.records import record
from provisioner.vocabulary import WeightFormat
from provisioner.workload.kinds import Kind, Misfit, Text, as_scalar, suggest, surprise
from provisioner.workload.nearest import nearest
from provisioner.workload.quantities import EngineName
from provisioner.workload.tree import Branch, Items, Node, Path, Scalar, show, whole

NAME = Text(
    "a name",
    "llama-70b-chat",
    r"[a-z](?:[a-z0-9-]{0,39}[a-z0-9])?",
    41,
    rule="small letters, digits and hyphens, a letter first, no hyphen last",
)
MODEL_ID = Text("a model id", "meta-llama/Llama-3.1-8B-Instruct", r"[!-~](?:[ -~]*[!-~])?", 200)
PROFILE = Text("a profile", "default", r"[!-~](?:[ -~]*[!-~])?")
PLAIN_NAME = Text("a name without spaces", "g6.xlarge", r"[!-~]+", 256)
GPU_NAME = Text("the name of a GPU", "L4", r"[A-Za-z0-9](?:[A-Za-z0-9 ._/-]*[A-Za-z0-9])?", 80)
REGION = Text("the name of a region", "us-east-1", r"[a-z][a-z0-9-]*[a-z0-9]", 40)
SOURCE = Text(
    "an address",
    "s3://bucket/path or hf://meta-llama/Llama-3.1-8B-Instruct@main",
    r"(?:hf|s3|gs)://[A-Za-z0-9][!-~]*",
    1024,
    rule="it starts with hf://, s3:// or gs://",
)
IMAGE = Text("a container image", "ghcr.io/team/serve@sha256:...", r"[a-z0-9][A-Za-z0-9./:@_-]*", 512)
ARGUMENT = Text("one argument of a command", "--port=8000", r"(?s:[^\x00]*)", 32_768, portable=False)
VARIABLE = Text("the name of an environment variable", "HF_HOME", r"[A-Za-z_][A-Za-z0-9_]*", 256)
TAG_KEY = Text(
    "a tag key",
    "team",
    r"(?!(?i:gpuprov:|aws:))[\w .:/=+@-]+",
    128,
    rule="letters, digits, spaces and _ . : / = + - @, not starting with gpuprov: or aws:",
    portable=False,
)
TAG_VALUE = Text(
    "a tag value",
    "search",
    r"[\w .:/=+@-]*",
    256,
    rule="letters, digits, spaces and _ . : / = + - @",
    portable=False,
)
ENGINE = EngineName()

FORMAT_VERSION = 1
"""Version of ``workload.yaml`` that this package reads."""

# fmt: off
GGUF_TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_K", "Q5_1",
    "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_K", "Q4_1", "Q4_0", "Q3_K_L", "Q3_K_M", "Q3_K_S",
    "Q3_K", "Q2_K_S", "Q2_K", "IQ4_NL", "IQ4_XS", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS",
    "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "TQ2_0", "TQ1_0", "MXFP4_MOE",
    "MXFP4", "NVFP4", "Q2_0", "Q1_0",
)
# fmt: on
"""File types of llama.cpp. Source: the options of ``llama-quantize`` (tools/quantize/quantize.cpp, ggml-org/llama.cpp)."""


class FormatVersion(Kind):
    """The version of the format: 1."""

    __slots__ = ()

    def read(self, node: Node) -> int:
        """The version."""
        scalar = as_scalar(node, "a version", f"write {FORMAT_VERSION}")
        if isinstance(scalar.value, bool) or scalar.value != FORMAT_VERSION or scalar.text != str(FORMAT_VERSION):
            raise Misfit(f"{show(scalar)} is no version that this gpuprov reads", f"write version: {FORMAT_VERSION}")
        return FORMAT_VERSION

    def schema(self) -> dict[str, Any]:
        """The one version."""
        return {"const": FORMAT_VERSION}


VERSION = FormatVersion()


class WeightsWord(Kind):
    """A weight format, or ``gguf-<type>``; GGUF types are written in capitals whatever the spec has."""

    def read(self, node: Node) -> str:
        """The word."""
        choices = ", ".join(WeightFormat)
        remedy = f"write one of {choices}, or gguf- and a type such as gguf-Q4_K_M"
        scalar = as_scalar(node, "a weight format", remedy)
        if isinstance(scalar.value, str):
            if scalar.value in tuple(WeightFormat):
                return str(scalar.value)
            if scalar.value[:5].lower() == "gguf-":
                return self._gguf(scalar)
        remedy = suggest(scalar.text, tuple(WeightFormat), remedy)
        raise Misfit(f"{show(scalar)} is not a weight format{surprise(scalar)}", remedy)

    def _gguf(self, scalar: Scalar) -> str:
        kind = scalar.text[5:].upper()
        if kind in GGUF_TYPES:
            return f"gguf-{kind}"
        near = nearest(kind, GGUF_TYPES)
        remedy = f"did you mean gguf-{near}?" if near else f"write gguf- and one of {', '.join(GGUF_TYPES)}"
        raise Misfit(f"{show(scalar)} names no GGUF type", remedy)

    def schema(self) -> dict[str, Any]:
        """A string with the formats; editors get GGUF types in capitals."""
        return {
            "anyOf": [{"enum": [str(word) for word in WeightFormat]}, {"enum": [f"gguf-{kind}" for kind in GGUF_TYPES]}]
        }


WEIGHTS = WeightsWord()


class Cidr(Kind):
    """An IPv4 or IPv6 network."""

    def read(self, node: Node) -> str:
        """The network in its usual spelling."""
        import ipaddress

        remedy = "write a network such as 203.0.113.7/32"
        scalar = as_scalar(node, "a network", remedy)
        address, slash, _ = scalar.text.partition("/")
        try:
            network = ipaddress.ip_network(scalar.text.strip(), strict=False)
        except ValueError:
            raise Misfit(f"{show(scalar)} is not a network{surprise(scalar)}", remedy) from None
        if not slash:
            raise Misfit(f"{show(scalar)} has no prefix length", f"write {network} for this one address")
        if str(network.network_address) != str(ipaddress.ip_address(address.strip())):
            raise Misfit(
                f"{show(scalar)} names an address inside a network",
                f"write {network}, or {address}/{network.max_prefixlen}",
            )
        return str(network)

    def schema(self) -> dict[str, Any]:
        """A string with an address and a prefix length."""
        return {"type": "string", "pattern": r"^[0-9A-Fa-f:.]+/\d{1,3}$", "examples": ["203.0.113.7/32"]}


CIDR = Cidr()

SECRET_STORES = ("aws-secretsmanager", "gcp-secretmanager")


@record(frozen=True, slots=True)
class SecretReference:
    """Where a secret is kept; the value itself never stands in a spec."""

    store: str
    name: str

    def __str__(self) -> str:
        return f"{self.store}:{self.name}"


class EnvironmentValue(Kind):
    """A text, or ``{secret: store:name}``."""

    __slots__ = ()

    def read(self, node: Node) -> str | SecretReference:
        """The text, or the reference."""
        if not isinstance(node, Branch):
            return ARGUMENT.read(node)
        unknown = next((key for key in node.values if key != "secret"), None)
        if unknown is not None:
            remedy = suggest(unknown, ("secret",), "write {secret: aws-secretsmanager:name}")
            raise Misfit(f"unknown key {show(unknown)}", remedy, (unknown,), at_key=True)
        if not node.values:
            raise Misfit("the mapping is empty", "write {secret: aws-secretsmanager:name}")
        try:
            return self._reference(node.values["secret"])
        except Misfit as misfit:
            raise misfit.below("secret") from None

    def _reference(self, node: Node) -> SecretReference:
        remedy = f"write {' or '.join(f'{store}:name' for store in SECRET_STORES)}"
        scalar = as_scalar(node, "a reference to a secret", remedy)
        store, _, name = scalar.text.partition(":")
        if not isinstance(scalar.value, str) or store not in SECRET_STORES:
            raise Misfit(f"{show(scalar)} names no store of secrets", suggest(store, SECRET_STORES, remedy))
        if not re.fullmatch(r"[!-~]{1,512}", name):
            raise Misfit(f"{show(scalar)} names no secret", f"write {store}: and the secret's name")
        return SecretReference(store, name)

    def write(self, value: str | SecretReference) -> Any:
        """The text, or the mapping."""
        return {"secret": str(value)} if isinstance(value, SecretReference) else value

    def schema(self) -> dict[str, Any]:
        """Either."""
        stores = "|".join(SECRET_STORES)
        secret = {"type": "string", "pattern": rf"^(?:{stores}):[!-~]+$"}
        mapping = {
            "type": "object",
            "properties": {"secret": secret},
            "required": ["secret"],
            "additionalProperties": False,
        }
        return {"anyOf": [{"type": "string"}, mapping]}


ENVIRONMENT_VALUE = EnvironmentValue()


class JsonObject(Kind):
    """A mapping whose keys another part of gpuprov judges. ``names_file``: a spec may name the JSON file that holds it."""

    __slots__ = ("names_file",)

    def __init__(self, *, names_file: bool = False) -> None:
        self.names_file = names_file

    def read(self, node: Node) -> dict[str, Any]:
        """The mapping as plain JSON values."""
        if not isinstance(node, Branch) or not node.values:
            shown = "an empty one" if isinstance(node, Branch) else show(node) or "nothing"
            remedy = "write the path of a config.json" if self.names_file else "write its keys below it"
            raise Misfit(f"a mapping is wanted here, not {shown}", remedy)
        return {key: _plain(item, (key,)) for key, item in node.values.items()}

    def schema(self) -> dict[str, Any]:
        """An object, or the path of one."""
        mapping: dict[str, Any] = {"type": "object", "minProperties": 1}
        return {"anyOf": [{"type": "string", "minLength": 1}, mapping]} if self.names_file else mapping


def _plain(node: Node, path: Path) -> Any:
    """A node as JSON values.

    Raises:
        Misfit: a number that is not finite.
    """
    if isinstance(node, Branch):
        return {key: _plain(item, (*path, key)) for key, item in node.values.items()}
    if isinstance(node, Items):
        return [_plain(item, (*path, index)) for index, item in enumerate(node.items)]
    if isinstance(node.value, float) and not math.isfinite(node.value):
        raise Misfit(f"{show(node)} is not finite", "write a finite number", path)
    return whole(node.value) if isinstance(node.value, float) else node.value


JSON_OBJECT = JsonObject()
CONFIG = JsonObject(names_file=True)
