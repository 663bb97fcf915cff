"""The container image of ``run: auto``: the planned engine's own, its tag resolved once to a digest and kept from then on.

Source: OCI distribution specification, "Pulling manifests" (the digest is in ``Docker-Content-Digest``); token authentication of
Docker Hub; image names of the vLLM and SGLang documentation.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.errors import CloudError, UsageError
from provisioner.planner.launch import why_not_auto
from provisioner.sizing.engines import find_profile
from provisioner.vocabulary import Engine
from provisioner.workload.spec import Workload

REPOSITORIES = {Engine.VLLM: "vllm/vllm-openai", Engine.SGLANG: "lmsysorg/sglang"}
"""Engines whose images start a server and carry their version as a tag."""
RELEASES = {(Engine.SGLANG, "0.5"): "0.5.12"}
"""What a version of the profiles stands for where its first release is none: of SGLang's line, 0.5.0 was never published. Source: the
releases of SGLang on PyPI (0.5.1 is the first), and its images on Docker Hub, 2026-12-01."""
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Registry:
    """Where images are looked up."""

    base: str = "https://registry-1.docker.io"
    tokens: str | None = "https://auth.docker.io/token?service=registry.docker.io"

    def digest(self, repository: str, tag: str) -> str:
        """The digest that a tag stands for now.

        Raises:
            CloudError: the registry does not answer, or has no such tag.
        """
        headers = {"Accept": _MANIFESTS}
        try:
            if self.tokens is not None:
                answer = _get(f"{self.tokens}&scope=repository:{repository}:pull", {})
                headers["Authorization"] = f"Bearer {json.loads(answer[1])['token']}"
            found, _ = _get(f"{self.base}/v2/{repository}/manifests/{tag}", headers)
        except (OSError, ValueError, KeyError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise CloudError(
                f"the digest of {repository}:{tag} could not be read: {error}",
                remedy="pin it yourself: run: {image: NAME@sha256:…, command: [...]}",
            ) from error
        return found


def tag_of(engine: Engine, version: str) -> str:
    """The tag of an engine's version: three numbers after a ``v``."""
    numbers = RELEASES.get((engine, version), version).split(".")
    return "v" + ".".join([*numbers, *["0"] * (3 - len(numbers))])


def engine_image(engine: Engine, version: str, registry: Registry | None) -> str:
    """The image of an engine.

    Args:
        engine: the planned engine.
        version: stated, or the newest known one.
        registry: where its tag is resolved; ``None`` leaves the tag, for the sandbox, where nothing is pulled.

    Raises:
        UsageError: the engine has no image of its own.
        CloudError: the registry does not answer.
    """
    repository = REPOSITORIES.get(engine)
    if repository is None:
        raise UsageError(
            f"`run: auto` knows no image of {engine}, of {' and '.join(REPOSITORIES)} alone",
            remedy="state it: run: {image: NAME@sha256:…, command: [...], ports: [...]} (`gpuprov plan` prints the command), or leave "
            "inference.engine out",
        )
    name = f"{repository}:{tag_of(engine, version)}"
    return name if registry is None else f"{name}@{registry.digest(repository, tag_of(engine, version))}"


def _get(url: str, headers: dict[str, str]) -> tuple[str, str]:
    """The digest header and the text of an answer."""
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - fixed schemes above
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - fixed schemes above
        text = answer.read(4_000_000).decode("utf-8", "replace")
        digest = answer.headers.get("Docker-Content-Digest") or ""
    if "/manifests/" in url and not digest.startswith("sha256:"):
        raise ValueError("the registry tells no digest")
    return digest, text


_ENGINES = {
    "vllm": Engine.VLLM,
    "trtllm-serve": Engine.TENSORRT_LLM,
    "llama-server": Engine.LLAMA_CPP,
    "python3": Engine.SGLANG,
}
"""First word of a planned command -> its engine."""


def image_of_plan(argv: Sequence[str], workload: Workload, kept: str | None, registry: Registry | None) -> str:
    """The image for a planned command.

    Args:
        argv: the planned command.
        workload: the spec; the engine's version that it states, or else the newest known one.
        kept: what an earlier ``up`` resolved; it stays while it is of the same version.
        registry: see ``engine_image``.

    Raises:
        UsageError: there is no planned command, or no image for it.
        CloudError: the registry does not answer.
    """
    engine = _ENGINES.get(argv[0]) if argv else None
    if engine is None:
        message, remedy = why_not_auto(workload)
        raise UsageError(message, remedy=remedy)
    stated = workload.inference.engine if workload.inference is not None else None
    version = (stated.version if stated is not None else None) or find_profile(str(engine), None)[0].version
    name = engine_image(engine, version, None)
    if kept is not None and kept.partition("@")[0] == name and (registry is None or "@" in kept):
        return kept
    return engine_image(engine, version, registry)
