"""Where stacks' state lives, how its secrets are protected, and the environment that the engine gets.

Default: files below gpuprov's home, with a passphrase that is generated once and kept beside them (mode 0600). A team names a
remote backend and a secrets provider. Pulumi variables of the caller's environment count only when the backend says so, so that
a login or passphrase of another Pulumi project can never send this state elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from provisioner.errors import UsageError
from stacks import made

PLUGIN = "pulumi-resource-gpuprov"
POLICY_PACK = "gpuprov-policy"
PULUMI_CLOUD = "https://api.pulumi.com"
LOCK_FD_VARIABLE = "GPUPROV_LOCK_FD"
"""Descriptor of the stack's lock, held by the engine and its plugins as long as any of them lives (see ``stacks.locks``)."""

_REMOTE_SCHEMES = ("s3", "gs", "azblob", "https", "http")
_SECRETS_SCHEMES = ("awskms://", "gcpkms://", "azurekeyvault://", "hashivault://")
_PASSPHRASE_VARIABLES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


@dataclass(frozen=True, slots=True)
class Backend:
    """A Pulumi backend with everything that reaching it needs."""

    url: str
    secrets_provider: str
    """``passphrase``, ``default`` (Pulumi Cloud's own) or the URL of a key."""
    directory: Path | None = None
    """Folder of a file backend; ``None`` for a remote one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for the engine: where the backend is, and the passphrase or token that opens it."""
    is_default: bool = False
    """Whether it is the file backend below gpuprov's home."""

    @property
    def is_local(self) -> bool:
        """Whether the state is plain files of this machine."""
        return self.directory is not None

    @property
    def key(self) -> str:
        """A short name for the backend in file names: two backends never share locks or settings."""
        return "local" if self.is_default else hashlib.sha256(self.url.encode()).hexdigest()[:12]


def choose_backend(home: Path, url: str | None, environ: Mapping[str, str] = os.environ) -> Backend:
    """The backend that ``--backend`` or ``GPUPROV_BACKEND`` names, else files below ``home``.

    Args:
        home: gpuprov's home.
        url: ``file://…``, ``s3://…``, ``gs://…``, ``azblob://…``, ``https://…`` (a Pulumi service), or ``pulumi``: whatever
            ``PULUMI_BACKEND_URL`` says, else Pulumi Cloud. ``None`` asks the environment.
        environ: the caller's environment.

    Raises:
        UsageError: an unknown kind of URL, no secrets provider for a remote backend, or a lost passphrase.
    """
    text = url or environ.get("GPUPROV_BACKEND") or ""
    if text == "pulumi":
        text = environ.get("PULUMI_BACKEND_URL") or PULUMI_CLOUD
    if text in ("", "local"):
        return _file_backend((home / "state").absolute(), environ, is_default=True)
    if text.startswith("file://"):
        return _file_backend(Path(text.removeprefix("file://")).expanduser().absolute(), environ)
    if text.partition("://")[0] in _REMOTE_SCHEMES and "://" in text:
        return _remote_backend(text, environ)
    raise UsageError(
        f"backend {text!r} is none that gpuprov knows",
        remedy="use file://PATH, s3://BUCKET, gs://BUCKET, azblob://CONTAINER, https://SERVICE or pulumi",
    )


def _file_backend(directory: Path, environ: Mapping[str, str], *, is_default: bool = False) -> Backend:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    variables = {"PULUMI_BACKEND_URL": f"file://{directory}"}
    provider = environ.get("GPUPROV_SECRETS_PROVIDER")
    if provider:
        variables |= _secrets_variables(provider, environ)
    else:
        provider = "passphrase"
        variables["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(passphrase_file(directory))
    # No account is behind files, so there is nothing to keep in the operating system's key ring (and no wait for one).
    variables["PULUMI_CREDENTIAL_STORE"] = "plaintext"
    return Backend(variables["PULUMI_BACKEND_URL"], provider, directory, variables, is_default)


def _remote_backend(url: str, environ: Mapping[str, str]) -> Backend:
    provider = environ.get("GPUPROV_SECRETS_PROVIDER")
    if not provider:
        raise UsageError(
            f"the remote backend {url} needs a secrets provider",
            remedy="set GPUPROV_SECRETS_PROVIDER to awskms://KEY, gcpkms://KEY or passphrase",
        )
    variables = {"PULUMI_BACKEND_URL": url} | _secrets_variables(provider, environ)
    if url.startswith(("https://", "http://")) and environ.get("PULUMI_ACCESS_TOKEN"):
        variables["PULUMI_ACCESS_TOKEN"] = environ["PULUMI_ACCESS_TOKEN"]
    return Backend(url, provider, None, variables)


def _secrets_variables(provider: str, environ: Mapping[str, str]) -> dict[str, str]:
    if provider == "passphrase":
        given = {name: environ[name] for name in _PASSPHRASE_VARIABLES if environ.get(name)}
        if not given:
            raise UsageError(
                "the secrets provider is passphrase, and there is none",
                remedy="set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE",
            )
        return given
    if provider == "default" or provider.startswith(_SECRETS_SCHEMES):
        return {}
    raise UsageError(
        f"GPUPROV_SECRETS_PROVIDER is {provider!r}",
        remedy="set it to awskms://KEY, gcpkms://KEY, passphrase, or default (a Pulumi service's own)",
    )


def passphrase_file(directory: Path) -> Path:
    """The file with the passphrase of a file backend, generated at the first use.

    The file appears whole or not at all, also with two first users at once: it is written under another name and linked.

    Raises:
        UsageError: stacks exist, but their passphrase is gone; a new one could not read their secrets.
    """
    path = directory / "passphrase"
    if path.exists():
        return path
    if any((directory / ".pulumi" / "stacks").glob("**/*.json")):
        raise UsageError(
            f"{path} is gone, and the stacks in {directory} were made with it",
            remedy="restore that file, or set GPUPROV_SECRETS_PROVIDER=passphrase and PULUMI_CONFIG_PASSPHRASE",
        )
    draft = directory / f".passphrase-{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
        _link_once(draft, path)
    finally:
        draft.unlink()
    return path


def _link_once(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return  # another process was first; its passphrase is the one


def find_script(name: str) -> Path:
    """Path of one of our console scripts: beside this Python first, so that versions never mix.

    Raises:
        UsageError: it is nowhere.
    """
    for directory in dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts"))):
        if found := which(name, path=directory):
            return Path(found)
    if found := which(name):
        return Path(found)
    raise UsageError(
        f"{name} is not installed beside {sys.executable}", remedy="install gpuprov again: pip install gpuprov"
    )


def engine_environment(
    home: Path, backend: Backend, provider: str | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The whole environment of an engine process.

    No update check, no download of plugins, no service chatter; the plugin is found on PATH; nothing of the caller's Pulumi
    settings but what the backend took over.

    Args:
        home: gpuprov's home, which the plugin needs as well.
        backend: from ``choose_backend``.
        provider: what the plugin carries plans out on where a stack's configuration does not say.
        environ: the caller's environment.
    """
    variables = {name: value for name, value in environ.items() if not name.startswith("PULUMI_")}
    scripts = find_script(PLUGIN).parent
    variables["PATH"] = os.pathsep.join((str(scripts), environ.get("PATH", os.defpath)))
    variables |= {
        "GPUPROV_HOME": str(home),
        # Errors of the plugin carry the marks of stacks.failures, which an ordinary Pulumi user never sees.
        "GPUPROV_MARKS": "1",
        "PULUMI_HOME": str(home / "pulumi"),
        "PULUMI_AUTOMATION_API": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_DIY_BACKEND_NO_LEGACY_WARNING": "true",
        # Settings of a stack may be missing on this machine (another one made it): its state knows the secrets provider.
        "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
        "PULUMI_SUPPRESS_NEO_LINK": "true",
    }
    variables[made.VARIABLE] = str(made.made_file(home, backend))
    if provider:
        variables["GPUPROV_CLOUD"] = provider
    return variables | dict(backend.variables)
