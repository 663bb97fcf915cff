"""AWS on the loopback: patched moto behind a door that records, refuses, loses answers and keeps client tokens.

The door works on the wire, so the real SDK runs against it: an error has its real status (a want of capacity is HTTP 500), a lost
answer is a connection that ends without one, a token that comes again gets the first answer again.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

from moto.kms.models import kms_backends
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.fakes import aws_disks as _disks  # noqa: F401 - patches what it plays
from tests.fakes import aws_health as _health  # noqa: F401 - patches what it plays
from tests.fakes import aws_limits as limits
from tests.fakes import aws_reservations as _reservations  # noqa: F401 - patches what it plays
from tests.fakes import aws_rules as rules

_SCOPE = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/")
_APP = re.compile(r"\bapp/(\S+)")
_INSTANCE = re.compile(rb"<instanceId>(i-[0-9a-f]+)</instanceId>")
_VOLUME = re.compile(rb"<volumeId>(vol-[0-9a-f]+)</volumeId>")
_LISTING = {
    "list-type",
    "prefix",
    "delimiter",
    "max-keys",
    "continuation-token",
    "encoding-type",
    "marker",
    "start-after",
    "fetch-owner",
    "x-id",
}
_TOKEN_CALLS = ("RunInstances", "CreateVolume")
_IMAGE_PARAMETERS = "/aws/service/deeplearning/ami/x86_64/"
_STATUS = {
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "UnauthorizedOperation": 403,
}

Start = Callable[[str, list[tuple[str, str]]], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request that came in, with its parameters as EC2's form or as JSON."""

    service: str
    operation: str
    region: str
    parameters: Mapping[str, Any]
    key: str = ""
    """Whose access key signed it."""
    agent: str = ""
    """The application id that the SDK tells, ``AWS_SDK_UA_APP_ID``."""


@dataclass
class Fault:
    """What happens to the next ``times`` matching requests.

    ``do``: ``error`` (refused, nothing happens), ``reset`` (the connection ends, nothing happens), ``lost`` (it happens, and the
    connection ends without an answer).
    """

    operation: str
    code: str = ""
    do: str = "error"
    times: int = 1
    service: str = ""
    region: str = ""
    message: str = "injected"
    match: Mapping[str, str] = field(default_factory=dict)

    def fits(self, call: Call) -> bool:
        """Whether it happens to this request."""
        return (
            self.times > 0
            and self.operation in ("*", call.operation)
            and self.service in ("", call.service)
            and self.region in ("", call.region)
            and all(call.parameters.get(key) == value for key, value in self.match.items())
        )


class FakeAws:
    """One emulated account behind one address."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.capacity: dict[tuple[str, str], int] = {}
        """(zone letter, instance type) -> machines that still start there; what is not named is unlimited."""
        self.quotas: dict[tuple[str, str], float] = {}
        """(region, quota code) -> value; what is not named cannot be read."""
        self.accounts: dict[str, str] = {}
        """Access key -> account, for keys of other accounts than ``rules.ACCOUNT``."""
        self.on_call: Callable[[Call, str], None] = lambda _call, _stage: None
        """Told of each request that has ``arrived``, and whose effect is ``done`` and not answered yet."""
        self.journal: Callable[[Call], None] = lambda _call: None
        """Told of each request before anything comes of it."""
        self._tokens: dict[tuple[str, str, str], tuple[str, int, bytes]] = {}
        self._lock = threading.RLock()
        self._server: Any = None
        self._app: Any = None

    @property
    def rules(self) -> rules.Rules:
        """Delays and records of the account."""
        return rules.RULES

    @property
    def host(self) -> str:
        """Its address and port."""
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """Where the SDK finds it."""
        return f"http://{self.host}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point the SDK at it, and at nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent/config",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        }

    def start(self) -> FakeAws:
        """Serve on a free port of the loopback."""
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._door, threaded=True, request_handler=_Quiet)
        threading.Thread(target=self._server.serve_forever, name="fake-aws", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the address."""
        self._server.shutdown()
        self._server.server_close()

    def reset(self) -> None:
        """An empty account that has seen nothing."""
        with self._lock:
            self.calls.clear()
            self.faults.clear()
            self.capacity.clear()
            self.quotas.clear()
            self.accounts.clear()
            self._tokens.clear()
            rules.reset()
            for kept in (s3_backends, kms_backends):
                kept.reset()

    def of(self, operation: str) -> list[Call]:
        """The requests of one operation, those apart that only ask whether it would be allowed."""
        return [call for call in self.calls if call.operation == operation and call.parameters.get("DryRun") != "true"]

    def inject(self, operation: str, code: str = "", **more: Any) -> None:
        """Let something happen to the next matching requests."""
        self.faults.append(Fault(operation, code, **more))

    # The door

    def _door(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        call = read_call(environ, body)
        if call.key in self.accounts:
            environ["HTTP_X_MOTO_ACCOUNT_ID"] = self.accounts[call.key]
        with self._lock:
            self.calls.append(call)
            fault = next((one for one in self.faults if one.fits(call)), None)
            if fault is not None:
                fault.times -= 1
        self.journal(call)
        self.on_call(call, "arrived")
        if fault is not None and fault.do == "reset":
            _hang_up(environ)
        if fault is not None and fault.do == "error":
            return _send(start, *_error(call, fault.code, fault.message))
        status, headers, content = self._answer(call, environ)
        self.on_call(call, "done")
        if fault is not None and fault.do == "lost":
            _hang_up(environ)
        start(status, headers)
        return [content]

    def _answer(self, call: Call, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        if call.service == "ssm" and (own := self._parameter(call) or self._session(call)):
            return own
        if call.service == "servicequotas":
            return self._quota(call)
        if call.operation in _TOKEN_CALLS and call.parameters.get("ClientToken"):
            with self._lock:
                return self._once(call, environ)
        if call.operation == "StartInstances" and (refusal := self._no_room(call)):
            return refusal
        return self._moto(environ)

    def _moto(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        told: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            told.extend((status, headers))

        content = b"".join(self._app(environ, start))
        return told[0], told[1], content

    def _once(self, call: Call, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        """A call with a token: made once, answered each time. Source: EC2 developer guide, "Ensuring idempotency"."""
        key = (call.region, call.operation, str(call.parameters["ClientToken"]))
        sent = json.dumps({k: v for k, v in sorted(call.parameters.items()) if k != "ClientToken"})
        if key in self._tokens:
            before, _, content = self._tokens[key]
            if before != sent:
                return _plain(*_error(call, "IdempotentParameterMismatch", "used with other parameters before"))
            if self._is_spent(call.region, content):
                return _plain(
                    *_error(call, "IdempotentInstanceTerminated", "associated with a resource that is deleted")
                )
            return _plain(200, content, "text/xml")
        if call.operation == "RunInstances" and (refusal := self._over_quota(call) or self._no_room(call)):
            return refusal
        status, headers, content = self._moto(environ)
        if status.startswith("200"):
            self._tokens[key] = (sent, 200, content)
            self._take(call)
        return status, headers, content

    def _is_spent(self, region: str, content: bytes) -> bool:
        for instance_id in _INSTANCE.findall(content):
            found = rules.machine(region, instance_id.decode())
            if found is None or found._state.name in ("shutting-down", "terminated"):
                return True
        return any(
            volume.decode() not in rules.backend(region).volumes
            for volume in _VOLUME.findall(content)
            if not _INSTANCE.search(content)
        )

    def _pools(self, call: Call) -> list[tuple[str, str]]:
        if call.operation == "StartInstances":
            found = rules.machine(call.region, call.parameters["InstanceId.1"])
            return [] if found is None else [(found.placement.zone, found.instance_type)]
        kind = call.parameters["InstanceType"]
        zone = call.parameters.get("Placement.AvailabilityZone")
        if subnet := call.parameters.get("SubnetId"):
            zone = rules.zone_of_subnet(call.region, subnet)
        return [(zone or f"{call.region}a", kind)]

    def _over_quota(self, call: Call) -> tuple[str, list[tuple[str, str]], bytes] | None:
        kind, market = call.parameters["InstanceType"], call.parameters.get("InstanceMarketOptions.MarketType")
        if market == "capacity-block":  # paid ahead, and no part of these quotas
            return None
        refusal = limits.over_quota(call.region, kind, is_spot=market == "spot", quotas=self.quotas)
        return None if refusal is None else _plain(*_error(call, *refusal))

    def _no_room(self, call: Call) -> tuple[str, list[tuple[str, str]], bytes] | None:
        for zone, kind in self._pools(call):
            if self.capacity.get((zone, kind), 1) <= 0:
                text = f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone})."
                return _plain(*_error(call, "InsufficientInstanceCapacity", text))
        return None

    def _take(self, call: Call) -> None:
        if call.operation == "RunInstances":
            for pool in self._pools(call):
                if pool in self.capacity:
                    self.capacity[pool] -= 1

    def _parameter(self, call: Call) -> tuple[str, list[tuple[str, str]], bytes] | None:
        name = str(call.parameters.get("Name", ""))
        if call.operation != "GetParameter" or not name.startswith(_IMAGE_PARAMETERS):
            return None
        answer = {"Parameter": {"Name": name, "Type": "String", "Value": rules.IMAGE, "Version": 1}}
        return _plain(200, json.dumps(answer).encode(), "application/x-amz-json-1.1")

    def _session(self, call: Call) -> tuple[str, list[tuple[str, str]], bytes] | None:
        """Sessions with machines, which moto has none of. Source: Systems Manager API reference, StartSession."""
        if call.operation != "StartSession":
            return None
        target = str(call.parameters["Target"])
        found = rules.machine(call.region, target)
        if found is None or found._state.name != "running" or target in rules.RULES.unregistered:
            return _plain(*_error(call, "TargetNotConnected", f"{target} is not connected."))
        answer = {"SessionId": "testing-0a1b2c", "TokenValue": "a-secret-token", "StreamUrl": "wss://127.0.0.1/stream"}
        return _plain(200, json.dumps(answer).encode(), "application/x-amz-json-1.1")

    def _quota(self, call: Call) -> tuple[str, list[tuple[str, str]], bytes]:
        code = str(call.parameters.get("QuotaCode"))
        value = self.quotas.get((call.region, code))
        if value is None:
            return _plain(
                *_error(call, "AccessDeniedException", "not authorized to perform: servicequotas:GetServiceQuota")
            )
        answer = {"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": value}}
        return _plain(200, json.dumps(answer).encode(), "application/x-amz-json-1.1")


class _Quiet(WSGIRequestHandler):
    """A server that keeps connections and writes no log."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        """Nothing."""


def read_call(environ: Mapping[str, Any], body: bytes) -> Call:
    """A request as what it asks, from its WSGI environment and its body."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, region, service = (scope[1], scope[2], scope[3]) if scope else ("", "", "")
    app = _APP.search(environ.get("HTTP_USER_AGENT", ""))
    agent = app[1] if app else ""
    target = environ.get("HTTP_X_AMZ_TARGET")
    if target:
        return Call(service, target.rpartition(".")[2], region, json.loads(body or b"{}"), key, agent)
    if service == "s3":
        return Call(service, *_object_call(environ, region), key, agent)
    form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    operation = form.pop("Action", "")
    form.pop("Version", None)
    return Call(service, operation, region, form, key, agent)


def _object_call(environ: Mapping[str, Any], region: str) -> tuple[str, str, dict[str, Any]]:
    """Operation, region and parameters of a call of S3, which are in its method and address."""
    bucket, _, name = environ["PATH_INFO"].lstrip("/").partition("/")
    method, query = environ["REQUEST_METHOD"], dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    what = "Object" if name else "Bucket"
    if not name and method == "GET" and not query.keys() - _LISTING:
        operation = "ListObjectsV2" if "list-type" in query else "ListObjects"
    elif "HTTP_X_AMZ_COPY_SOURCE" in environ:
        operation = f"Copy{what}"
    else:
        part = "".join(sorted(key for key in query if not query[key]))  # ?location, ?tagging: calls of their own
        operation = f"{method.capitalize()}{what}{part.capitalize()}"
    return operation, region, {"Bucket": bucket, **({"Key": name} if name else {})}


def _error(call: Call, code: str, message: str) -> tuple[int, bytes, str]:
    status = _STATUS.get(code, 400)
    if call.service in ("ssm", "servicequotas"):
        return status, json.dumps({"__type": code, "message": message}).encode(), "application/x-amz-json-1.1"
    inner = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if call.service == "ec2":
        return status, f"<Response><Errors>{inner}</Errors><RequestID>fake</RequestID></Response>".encode(), "text/xml"
    return status, f"<ErrorResponse>{inner}<RequestId>fake</RequestId></ErrorResponse>".encode(), "text/xml"


def _plain(status: int, content: bytes, kind: str) -> tuple[str, list[tuple[str, str]], bytes]:
    headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
    return f"{status} {'OK' if status == 200 else 'Refused'}", headers, content


def _send(start: Start, status: int, content: bytes, kind: str) -> Iterable[bytes]:
    line, headers, _ = _plain(status, content, kind)
    start(line, headers)
    return [content]


def _hang_up(environ: Mapping[str, Any]) -> None:
    """End the connection without an answer."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError("the answer is lost")


def pause(seconds: float) -> None:
    """Let delays of the account pass."""
    time.sleep(seconds)
