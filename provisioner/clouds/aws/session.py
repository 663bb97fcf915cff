"""The one door to boto3: clients with explicit time-outs and retries, and every error of theirs as one of ours.

boto3 is imported with the first call. Endpoints, proxies, profiles and regions are the SDK's own settings
(``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``~/.aws/config``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from provisioner.clouds.aws import unanswered
from provisioner.clouds.aws.deadline import Overdue, within
from provisioner.clouds.aws.errors import About, code_of, misconfigured, translate
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import Ambiguous, CredentialsError, GpuprovError

T = TypeVar("T")

HOME_REGION = "us-east-1"
"""Where the account is asked about itself when the user's configuration names no region."""

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 30
_LAUNCH_READ_TIMEOUT_S = 60
"""A large GPU machine can keep the call for tens of seconds."""
_READ_TRIES = 5
"""Of the SDK, for answers that come at once: throttled, or a failure inside AWS."""
ANSWER_MAX_S = 60.0
"""Longest time for one request and its answer (of a list: one page), with all tries of the SDK. Who asks again by himself counts
this time as his own (``stacks.provider.patience``), so tries do not multiply."""
LAUNCH_ANSWER_MAX_S = 90.0
"""The same of a call that is tried once."""
_THREADS_MAX = 16
_AGENT = "gpuprov"
_RIGHTS = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
"""The credentials are good, and may not do this."""


class AwsApi:
    """Calls of one account. Safe to share between threads."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._account: str | None = None

    @property
    def home_region(self) -> str:
        """The region of the user's configuration, else ``HOME_REGION``."""
        found = self._guarded(self._configuration, lambda: self._open_session().region_name)
        return str(found or HOME_REGION)

    def knows_region(self, region: str) -> bool:
        """Whether the SDK has heard of a region; one that it has not may be younger than the SDK."""

        def look() -> bool:
            session = self._open_session()
            names = (session.get_available_regions("ec2", part) for part in session.get_available_partitions())
            return any(region in known for known in names)

        return self._guarded(self._configuration, look)

    @property
    def _configuration(self) -> About:
        return About("", "", HOME_REGION, self._settings.profile)

    def account(self) -> str:
        """The account of the credentials; asked once and kept.

        Raises:
            CredentialsError: there are none, or they have expired.
        """
        with self._lock:
            if self._account is None:
                self._account = str(self._answer("sts", "GetCallerIdentity", self.home_region)["Account"])
            return self._account

    def call(
        self, service: str, operation: str, region: str, *, once: bool = False, **parameters: Any
    ) -> dict[str, Any]:
        """The answer of one call.

        Args:
            service: as boto3 names it, ``ec2``.
            operation: as the API names it, ``RunInstances``.
            region: where.
            once: make exactly one try, for calls that a refusal for want of capacity may answer: AWS sends it as
                HTTP 500, and the SDK would repeat it.
            **parameters: of the call.

        Raises:
            GpuprovError: by the table in ``errors``.
        """
        self._require_account()
        return self._answer(service, operation, region, once=once, **parameters)

    def _answer(
        self, service: str, operation: str, region: str, *, once: bool = False, **parameters: Any
    ) -> dict[str, Any]:
        about = About(service, operation, region, self._settings.profile)

        def ask() -> dict[str, Any]:
            method = getattr(self._client(service, region, once=once), _method(operation))
            answer: dict[str, Any] = within(LAUNCH_ANSWER_MAX_S if once else ANSWER_MAX_S, lambda: method(**parameters))
            return _of_ec2(answer, about)

        return self._guarded(about, ask)

    def endpoint(self, service: str, region: str) -> str:
        """The address that calls of a service go to."""
        return str(self._client(service, region, once=False).meta.endpoint_url)

    def rehearse(self, service: str, operation: str, region: str, **parameters: Any) -> None:
        """Ask whether a call would be allowed, without its effect.

        Source: EC2 API reference, common parameters: ``DryRun`` answers ``DryRunOperation`` where it would.

        Raises:
            GpuprovError: it would be refused.
        """
        try:
            self.call(service, operation, region, once=True, DryRun=True, **parameters)
        except GpuprovError as error:
            if code_of(error) != "DryRunOperation":
                raise

    def pages(self, service: str, operation: str, region: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """The items under ``key`` of all pages of a list; all of them, or an error.

        Raises:
            GpuprovError: any page failed.
        """
        self._require_account()
        about = About(service, operation, region, self._settings.profile)

        def ask() -> list[dict[str, Any]]:
            paginator = self._client(service, region, once=False).get_paginator(_method(operation))
            pages = iter(paginator.paginate(**parameters))
            found: list[dict[str, Any]] = []
            while (page := within(ANSWER_MAX_S, lambda: next(pages, None))) is not None:
                found += _of_ec2(page, about).get(key, ())
            return found

        return self._guarded(about, ask)

    def _require_account(self) -> None:
        """Refuse to ask another account than the one that is expected: what is not there would read as gone.

        Raises:
            CredentialsError: the credentials are of another account.
        """
        expected = self._settings.account
        if expected is None or self.account() == expected:
            return
        raise CredentialsError(
            f"these credentials are of account {self.account()}, and this was made in account {expected}",
            where="your AWS configuration",
            remedy=f"use credentials of account {expected}: AWS_PROFILE, or aws.profile in the spec",
        )

    def _client(self, service: str, region: str, *, once: bool) -> Any:
        key = (service, region, once)
        with self._lock:
            if key not in self._clients:
                session = self._open_session()
                self._clients[key] = self._configured(
                    lambda: session.client(service, region_name=region, config=_config(once=once))
                )
            return self._clients[key]

    def _open_session(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = self._configured(self._new_session)
            return self._session

    def _new_session(self) -> Any:
        import boto3  # type: ignore[import-untyped] # boto3 ships no types

        session = boto3.session.Session(profile_name=self._settings.profile)
        _ask_nobody(session, self._configuration)
        return session

    def _configured(self, read: Callable[[], T]) -> T:
        """What the SDK makes of the user's configuration; whatever it stumbles over there is a matter of credentials."""
        try:
            return read()
        except Exception as error:
            raise misconfigured(error, self._configuration) from error

    def _forget(self) -> None:
        """Read the credentials anew with the next call: after a new login a long-running command goes on."""
        with self._lock:
            self._session = self._account = None
            self._clients.clear()

    def _guarded(self, about: About, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Overdue as error:
            raise unanswered.overdue(str(error), where=about.where) from error
        except Exception as error:
            ours = translate(error, about)
            if ours is None:
                raise
            ours.__cause__ = error
            if isinstance(ours, CredentialsError) and code_of(ours) not in _RIGHTS:
                self._forget()
            raise ours from error


def in_parallel(work: Callable[[T], Iterable[Any]], items: Iterable[T]) -> list[Any]:
    """The results of work on each item, in the order of the items; a failure of any is a failure of all.

    Raises:
        GpuprovError: the first failure, by the order of the items.
    """
    todo = list(items)
    if len(todo) < 2:
        return [result for item in todo for result in work(item)]
    with ThreadPoolExecutor(min(_THREADS_MAX, len(todo)), thread_name_prefix="aws") as pool:
        return [result for results in pool.map(lambda item: list(work(item)), todo) for result in results]


def where_it_answers(
    look: Callable[[str], Iterable[T]], regions: Iterable[str]
) -> tuple[tuple[T, ...], dict[str, GpuprovError]]:
    """What is found in the regions that answer, in their order, and why the others do not."""

    def tried(region: str) -> list[tuple[str, list[T], GpuprovError | None]]:
        try:
            return [(region, list(look(region)), None)]
        except GpuprovError as error:
            return [(region, [], error)]

    answers = in_parallel(tried, regions)
    unlisted = {region: error for region, _, error in answers if error is not None}
    return tuple(entry for _, found, _ in answers for entry in found), unlisted


def filters(tags: Mapping[str, str], *more: tuple[str, str]) -> list[dict[str, Any]]:
    """EC2 filters for objects that carry all of ``tags`` and are ours (they have a stack-id)."""
    from provisioner.tags import STACK_ID

    named = [(f"tag:{key}", _literal(value)) for key, value in sorted(tags.items())]
    own = [] if STACK_ID in tags else [("tag-key", STACK_ID)]
    return [{"Name": name, "Values": [value]} for name, value in (*named, *own, *more)]


def _literal(value: str) -> str:
    """A filter value that matches only itself: ``*`` and ``?`` are wildcards there. Source: EC2 user guide, "Filtering"."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")


class _Sessions(dict[str, Any]):
    """Sessions of roles: those that the AWS CLI keeps on disk, and our own in memory; nothing is written."""

    def __init__(self) -> None:
        from botocore.credentials import JSONFileCache  # type: ignore[import-untyped]

        super().__init__()
        self._kept = JSONFileCache(str(Path("~/.aws/cli/cache").expanduser()))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._kept

    def __missing__(self, key: str) -> Any:
        return self._kept[key]


def _of_ec2(answer: dict[str, Any], about: About) -> dict[str, Any]:
    """An answer that EC2 itself gave: a page of some proxy, read as XML, would pass for a list of nothing.

    Source: EC2 API reference, "Making requests": each answer has a ``requestId``.

    Raises:
        Ambiguous: it is somebody else's.
    """
    if about.service == "ec2" and not answer.get("ResponseMetadata", {}).get("RequestId"):
        raise Ambiguous(
            "something other than EC2 answered",
            where=about.where,
            remedy="check the network, proxy and AWS_ENDPOINT_URL, then run the command again",
        )
    return answer


def _ask_nobody(session: Any, about: About) -> None:
    """Let a profile with ``mfa_serial`` use the session that the AWS CLI keeps, and never ask for a code itself.

    The SDK would ask on the terminal, and a plugin that waits there waits for ever.

    Source: botocore, ``AssumeRoleProvider`` (``cache`` and ``_prompter``); the AWS CLI keeps its sessions in
    ``~/.aws/cli/cache``.
    """

    def refuse(_prompt: str) -> str:
        raise unanswered.needs_code(about.where, about.profile)

    provider = session._session.get_component("credential_provider").get_provider("assume-role")  # noqa: SLF001 - boto3 has no other way
    provider.cache = _Sessions()
    provider._prompter = refuse  # noqa: SLF001 - it has no public name


def _method(operation: str) -> str:
    from botocore import xform_name  # type: ignore[import-untyped]

    return str(xform_name(operation))


def _config(*, once: bool) -> Any:
    from botocore.config import Config  # type: ignore[import-untyped]

    return Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_LAUNCH_READ_TIMEOUT_S if once else _READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": 1 if once else _READ_TRIES},
        max_pool_connections=_THREADS_MAX,
        user_agent_extra=_AGENT,
    )
