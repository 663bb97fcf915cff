"""A session with a machine through Systems Manager: AWS is asked for it here, and the Session Manager plugin speaks in it.

The AWS CLI is not needed: it does nothing more than this.

Source: Systems Manager API reference, StartSession; aws/aws-cli, ``customizations/sessionmanager.py`` (how the plugin is called, and
since which of its versions the session's token can be kept out of the process list).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.clouds.aws.errors import code_of
from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.clouds.cloud import Placement
from provisioner.errors import Rejected, UsageError

PLUGIN = "session-manager-plugin"
_FORWARD = "AWS-StartPortForwardingSession"
_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
_LAST_WITHOUT_VARIABLE = (1, 2, 497, 0)
_VERSION_TIMEOUT_S = 10
_NOT_CONNECTED = "TargetNotConnected"
_INSTALL = (
    "install the Session Manager plugin (https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html); the AWS CLI is not needed"
)


@dataclass(frozen=True, slots=True)
class Shell:
    """A program that connects, and what is added to its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def require_plugin() -> str:
    """Where the plugin is.

    Raises:
        UsageError: it is not on PATH; no session was opened.
    """
    found = shutil.which(PLUGIN)
    if found is None:
        raise UsageError(f"there is no `{PLUGIN}` on PATH", remedy=_INSTALL)
    return found


def asked(instance_id: str, port: int | None, local_port: int | None) -> dict[str, Any]:
    """Parameters of ``StartSession``: a shell, or a port of the machine that shows here."""
    if port is None:
        return {"Target": instance_id}
    ports = {"portNumber": [str(port)], "localPortNumber": [str(local_port or port)]}
    return {"Target": instance_id, "DocumentName": _FORWARD, "Parameters": ports}


def open_shell(api: AwsApi, settings: AwsSettings, placement: Placement, parameters: Mapping[str, Any]) -> Shell:
    """Open a session and say what speaks in it.

    Args:
        api: asks AWS.
        settings: of the stack.
        placement: where the machine is.
        parameters: from ``asked``.

    Raises:
        UsageError: the plugin is not there; nothing was asked.
        Rejected: the machine is not registered with Systems Manager, with what to do about it.
        GpuprovError: AWS refused otherwise.
    """
    plugin = require_plugin()
    try:
        answer = api.call("ssm", "StartSession", placement.region, **parameters)
    except Rejected as error:
        if code_of(error) != _NOT_CONNECTED:
            raise
        raise _unregistered(str(parameters["Target"]), placement.region, settings) from error
    session = json.dumps({key: answer[key] for key in ("SessionId", "TokenValue", "StreamUrl")})
    environment = {_VARIABLE: session} if _reads_variable(plugin) else {}
    words = (
        *(plugin, _VARIABLE if environment else session, placement.region, "StartSession", settings.profile or ""),
        *(json.dumps(dict(parameters)), api.endpoint("ssm", placement.region)),
    )
    return Shell(words, environment)


def _unregistered(instance_id: str, region: str, settings: AwsSettings) -> Rejected:
    """Source: Systems Manager user guide, "Troubleshooting Session Manager" and "Troubleshooting managed node availability"."""
    role = (
        f"the role of {settings.instance_profile} must have AmazonSSMManagedInstanceCore"
        if settings.instance_profile
        else "the spec names no aws.instance_profile: name one whose role has AmazonSSMManagedInstanceCore"
        " (or turn on Default Host Management in the region)"
    )
    return Rejected(
        f"{instance_id} in {region} is not registered with Systems Manager, so no session can be opened",
        remedy=f"in its first two minutes wait and run the command again; else {role}, and its subnet needs a way to"
        " the endpoints ssm and ssmmessages; `gpuprov logs` shows its console without either",
    )


def _reads_variable(plugin: str) -> bool:
    """Whether the plugin takes the session from a variable; one that does not say its version is handed it openly."""
    try:
        shown = subprocess.run(
            [plugin, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.(\d+))?", shown.strip())
    return found is not None and tuple(int(part or 0) for part in found.groups()) > _LAST_WITHOUT_VARIABLE
