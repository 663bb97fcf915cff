"""``gpuprov-policy``: the policy pack as an executable analyzer for ``pulumi up --policy-pack``.

It speaks the engine's analyzer protocol itself instead of building a ``PolicyPack`` of the SDK: the SDK stops a mandatory rule
at the first unknown value, takes misspelt rule ids without a word, and unpacks each resource once a rule. Source: pulumi
3.274.1, pkg/resource/plugin/analyzer_plugin.go; pulumi-policy 1.21.0, policy.py.

The process starts serving before it has read its rules, since the engine waits for the port; it ends with its engine.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped] # grpcio ships no types
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped] # protobuf ships no types
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc, plugin_pb2

from provisioner.errors import GpuprovError

if TYPE_CHECKING:
    from policies.engine import Diagnostic, EngineGate

PACK_NAME = "gpuprov"
DIRECTORY = Path(__file__).with_name("pack_directory")
"""The pack as Pulumi's language hosts start one: a ``PulumiPolicy.yaml`` and what it runs."""
MESSAGE_BYTES_MAX = 400 * 2**20
"""The same limit as the engine's."""
_PARENT_POLL_S = 1.0

_LEVELS = {"advisory": analyzer_pb2.ADVISORY, "mandatory": analyzer_pb2.MANDATORY, "disabled": analyzer_pb2.DISABLED}
_LEVEL_NAMES = {
    analyzer_pb2.ADVISORY: "advisory",
    analyzer_pb2.MANDATORY: "mandatory",
    analyzer_pb2.DISABLED: "disabled",
    analyzer_pb2.REMEDIATE: "remediate",
}
_SEVERITIES = {
    "low": analyzer_pb2.POLICY_SEVERITY_LOW,
    "medium": analyzer_pb2.POLICY_SEVERITY_MEDIUM,
    "high": analyzer_pb2.POLICY_SEVERITY_HIGH,
    "critical": analyzer_pb2.POLICY_SEVERITY_CRITICAL,
}


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """The rules behind the engine's analyzer protocol. Every error is an error of the call: the engine then stops."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._gate: EngineGate | None = None

    def gate(self) -> EngineGate:
        """The gate with its rules and its catalog, made once."""
        with self._lock:
            if self._gate is None:
                from policies.engine import EngineGate

                self._gate = EngineGate.of_project(self._folder)
            return self._gate

    def warm(self) -> None:
        """Read rules and catalog ahead of the first question; an error is shown when it is asked."""
        try:
            self.gate().load()
        except GpuprovError:
            return

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - names of the protocol
        """The engine introduces itself."""
        del request, context
        return analyzer_pb2.AnalyzerHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Version of the pack."""
        del request, context
        return plugin_pb2.PluginInfo(version=_version())

    def ConfigureStack(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Whether this is a preview, in which computed values are not known."""
        with _answering(context):
            self.gate().preview = request.dry_run
        return analyzer_pb2.AnalyzerStackConfigureResponse()

    def GetAnalyzerInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """All rules with their levels and the schema of their parameters."""
        del request
        with _answering(context):
            return self._info()

    def _info(self) -> Any:
        levels = self.gate().policy.levels()
        policies = [
            analyzer_pb2.PolicyInfo(
                name=rule.id,
                displayName=rule.title,
                description=rule.title,
                message=rule.rationale,
                enforcementLevel=_LEVELS[levels[rule.id]],
                configSchema=_schema(rule),
                policy_type=analyzer_pb2.POLICY_TYPE_RESOURCE,
                severity=_SEVERITIES[rule.severity],
                tags=[rule.family],
            )
            for rule in self.gate().policy.rules
            if rule.applies_to
        ]
        info = analyzer_pb2.AnalyzerInfo(
            name=PACK_NAME,
            displayName="gpuprov",
            version=_version(),
            supportsConfig=True,
            description="GPU machines that hold their workload, end in time and are not open to the world",
        )
        info.policies.extend(policies)
        return info

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Levels and parameters of ``--policy-pack-config``; a name that is no rule is an error."""
        with _answering(context):
            self.gate().configure(
                {
                    name: (
                        _LEVEL_NAMES[config.enforcementLevel],
                        json_format.MessageToDict(config.properties) if config.HasField("properties") else {},
                    )
                    for name, config in request.policyConfig.items()
                }
            )
        return empty_pb2.Empty()

    def Analyze(self, request: Any, context: Any) -> Any:  # noqa: N802
        """What the rules say of a resource's inputs, before it is made."""
        response = analyzer_pb2.AnalyzeResponse()
        with _answering(context):
            properties = json_format.MessageToDict(request.properties)
            found = self.gate().analyze(request.type, request.name, properties)
            response.diagnostics.extend(_message(diagnostic, request.urn) for diagnostic in found)
        return response

    def AnalyzeStack(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Nothing: it runs when machines bill already, so that no rule lives here."""
        del request, context
        return analyzer_pb2.AnalyzeResponse()

    def Remediate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Nothing is changed behind the program's back."""
        del request, context
        return analyzer_pb2.RemediateResponse()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Judging takes milliseconds; there is nothing to cancel."""
        del request, context
        return empty_pb2.Empty()


class _answering:  # noqa: N801 - reads as a verb where it is used
    """Turns errors into errors of the call, with one line of text and no secret; bugs by their type alone."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        from policies.secrets import redact

        if isinstance(error, GpuprovError):
            self._context.abort(grpc.StatusCode.FAILED_PRECONDITION, redact(str(error)))
        self._context.abort(grpc.StatusCode.INTERNAL, f"a bug in the policy pack: {type(error).__name__}")


def _message(diagnostic: Diagnostic, urn: str) -> Any:
    return analyzer_pb2.AnalyzeDiagnostic(
        policyName=diagnostic.rule.id,
        policyPackName=PACK_NAME,
        policyPackVersion=_version(),
        description=diagnostic.rule.title,
        message=diagnostic.message,
        enforcementLevel=analyzer_pb2.MANDATORY if diagnostic.mandatory else analyzer_pb2.ADVISORY,
        urn=urn,
        severity=_SEVERITIES[diagnostic.rule.severity],
    )


def _schema(rule: Any) -> Any:
    """JSON Schema of a rule's parameters; without defaults, which the engine would send back as if they were set."""
    properties = {}
    for parameter in rule.parameters:
        schema = parameter.schema()
        schema.pop("default", None)
        properties[parameter.name] = schema
    struct = struct_pb2.Struct()
    struct.update(properties)
    return analyzer_pb2.PolicyConfigSchema(properties=struct)


def _version() -> str:
    try:
        return version("gpuprov")
    except PackageNotFoundError:
        return "0.0.0"


def serve(folder: Path) -> tuple[Any, int]:
    """A started server and its port on the loopback interface."""
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=options)
    analyzer = Analyzer(folder)
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(analyzer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    threading.Thread(target=analyzer.warm, name="warm", daemon=True).start()
    return server, port


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the engine is gone: it gives us its address, we print the port that we listen on.

    With ``--directory`` alone, print the pack as a directory instead, for ``--policy-pack`` of an install with its language hosts.
    """
    if list(sys.argv[1:] if arguments is None else arguments) == ["--directory"]:
        sys.stdout.write(f"{DIRECTORY}\n")
        return
    parent = os.getppid()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # the engine interrupts its analyzers when it is done
        signal.signal(number, lambda *_: ended.set())
    server, port = serve(project_folder())
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    if _stdin_is_a_pipe():
        threading.Thread(target=_wait_for_end_of_input, args=(ended,), name="lifeline", daemon=True).start()
    while not ended.wait(_PARENT_POLL_S):
        if os.getppid() != parent:
            break
    server.stop(grace=0)


def project_folder() -> Path:
    """The folder of the program: the current one, unless an engine has started us in the pack's own directory."""
    here = Path.cwd()
    is_pack = (here / "PulumiPolicy.yaml").is_file() and not (here / "Pulumi.yaml").is_file()
    return Path(os.environ.get("PWD", here)) if is_pack else here


def _stdin_is_a_pipe() -> bool:
    """Whether standard input is the engine's pipe; started by hand or by a language host it may be anything."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _wait_for_end_of_input(ended: threading.Event) -> None:
    """A killed engine leaves the end of its pipe: a plugin must not outlive it."""
    while True:
        try:
            data = os.read(0, 4096)
        except OSError:
            break
        if not data:
            break
    ended.set()


if __name__ == "__main__":
    main()
