"""Secrets in plain text: how they are recognised, and how they are kept out of every report.

Two signs count: a value with the shape of a known credential, and a plain value under a name that promises a secret. Shapes
are the published prefixes of their issuers. Source: docs of GitHub secret scanning partner patterns, Hugging Face access
tokens, AWS IAM identifiers ("Understanding unique ID prefixes"), Google API keys, Slack tokens; read 2026-11.

Patterns are compiled at their first use: most runs hold nothing that comes near a secret.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cache
from itertools import islice, pairwise

from provisioner.records import record

REDACTED = "[redacted]"

_SHAPES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "a private key",
        ("-----BEGIN ",),
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    ("a Hugging Face token", ("hf_", "api_org_"), r"\bhf_[A-Za-z0-9]{10,}|\bapi_org_[A-Za-z0-9]{16,}"),
    ("an AWS access key id", ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z0-9]{12,20}\b"),
    ("a GitHub token", ("gh", "github_pat_"), r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("a GitLab token", ("gl",), r"\bgl(?:pat|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_-]{16,}"),
    ("a Google API key", ("AIza",), r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("a Google OAuth secret", ("GOCSPX-", "ya29."), r"\bGOCSPX-[A-Za-z0-9_-]{20,}|\bya29\.[A-Za-z0-9_-]{20,}"),
    (
        "a Slack token",
        ("xox", "hooks.slack.com"),
        r"\bxox[abposr]-[A-Za-z0-9-]{10,}|https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    ),
    ("an OpenAI or Anthropic key", ("sk-",), r"\bsk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{20,}"),
    ("a Stripe key", ("k_live_",), r"\b[rs]k_live_[A-Za-z0-9]{16,}"),
    ("an NVIDIA API key", ("nvapi-",), r"\bnvapi-[A-Za-z0-9_-]{20,}"),
    (
        "a package registry token",
        ("pypi-AgE", "npm_", "dckr_pat_"),
        r"\bpypi-AgE[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bdckr_pat_[A-Za-z0-9_-]{20,}",
    ),
    ("a Pulumi token", ("pul-",), r"\bpul-[0-9a-f]{40}\b"),
    ("a Weights & Biases key", ("wandb_v1_",), r"\bwandb_v1_[A-Za-z0-9_-]{20,}"),
    ("a JSON web token", ("eyJ",), r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("a bearer token", ("earer",), r"\b[Bb]earer[ \t]+(?=[A-Za-z._~+/-]*[0-9])[A-Za-z0-9._~+/-]{16,}=*"),
    (
        "a password in a URL",
        ("://",),
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,100}:(?!\$|<|\*)[^\s/@\"']{3,200}@",
    ),
)
"""Kind of credential, literals of which one is in each, and the pattern. The literals spare most runs the patterns altogether."""
_MARKS = tuple(mark for _, marks, _ in _SHAPES for mark in marks)

_SECRET_WORDS = frozenset(
    {"TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD", "APIKEY", "CREDENTIAL", "CREDENTIALS"}
)
_SECRET_PAIRS = frozenset(
    {
        ("API", "KEY"),
        ("ACCESS", "KEY"),
        ("PRIVATE", "KEY"),
        ("SECRET", "KEY"),
        ("AUTH", "KEY"),
        ("ACCOUNT", "KEY"),
        ("ENCRYPTION", "KEY"),
        ("SIGNING", "KEY"),
    }
)
_HARMLESS_ENDS = frozenset(
    {
        "FILE",
        "PATH",
        "DIR",
        "URL",
        "URI",
        "ENDPOINT",
        "ARN",
        "NAME",
        "ID",
        "LIMIT",
        "LENGTH",
        "LEN",
        "COUNT",
        "TYPE",
        "TTL",
        "SECONDS",
        "EXPIRY",
        "VERSION",
        "STDIN",
    }
)
"""Last words that turn the name into one about a secret: ``TOKEN_FILE``."""
_MODEL_WORDS = frozenset({"EOS", "BOS", "PAD", "UNK", "MASK", "STOP", "FIRST", "MAX", "NUM", "PER"})
"""Words beside which a token is a model's: ``EOS_TOKEN``, ``time_to_first_token``."""
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_HARMLESS_VALUE = r"|true|false|none|null|auto|yes|no|on|off|required|optional|[-+]?\d[\d.,_]{0,6}\s?[a-z%/]{0,3}|\$.*|[{\[].*|<[^>]*>|x+|\*+|\[redacted\]"
_VALUE_CHARACTERS_MIN = 6
_ASSIGNMENT = (
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_.-]{2,60})["']?\s*(?:=|:)\s*(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"',;}\]]+)"""
)
_FLAG = r"""(?<![\w-])--(?P<name>[A-Za-z][A-Za-z0-9_-]{2,60})[ \t]+(?P<value>"[^"\n]*"|'[^'\n]*'|(?!-|\w+=)[^\s"',;}\]\\]+)"""
"""``--api-key VALUE``; the form with an equals sign is an assignment."""
_NAMES_OF_SECRETS = frozenset({"--secret", "--secrets"})
"""Flags whose value is the name of a secret in a store: ``gcloud secrets versions access latest --secret=hf``, ``docker build --secret``."""
_BASE64 = r"[A-Za-z0-9+/\s]{16,}={0,2}\s*"
_BASE64_INSIDE = r"(?<![A-Za-z0-9+/=])(?:(?:[A-Za-z0-9+/]{60,76}\r?\n[ \t]*)+[A-Za-z0-9+/]{1,76}|[A-Za-z0-9+/]{20,})={0,2}(?![A-Za-z0-9+/=:])"
"""Base64 in a larger text: of ``echo ... | base64 -d``, of cloud-init's ``write_files``, of a MIME part; in one line or wrapped."""
_PARTS_MAX = 200
_UNPACKED_BYTES_MAX = 2**20
"""Cloud-init limits user-data to 16 KiB (EC2) and 256 KiB (GCE metadata values); beyond that it is no user-data."""


@record(frozen=True, slots=True)
class Found:
    """A secret in plain text: what it is, and the values that no report may show."""

    what: str
    values: tuple[str, ...] = field(repr=False)


@cache
def _shape() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<s{index}>{pattern})" for index, (_, _, pattern) in enumerate(_SHAPES)))


def _may_hold_shape(text: str) -> bool:
    """Whether a search for shapes can find anything at all."""
    return any(mark in text for mark in _MARKS)


def find_shape(text: str) -> str | None:
    """What kind of credential the text holds (``a Hugging Face token``), or ``None``."""
    match = _shape().search(text) if _may_hold_shape(text) else None
    return _SHAPES[int(str(match.lastgroup)[1:])][0] if match else None


def names_a_secret(name: str) -> bool:
    """Whether a variable of this name promises to hold a secret: ``HF_TOKEN`` does, ``MAX_TOKENS`` and ``TOKEN_FILE`` do not."""
    words = tuple(word.upper() for word in re.findall(_WORD, name))
    if not words or words[-1] in _HARMLESS_ENDS or _MODEL_WORDS.intersection(words):
        return False
    return any(word in _SECRET_WORDS for word in words) or any(pair in _SECRET_PAIRS for pair in pairwise(words))


def may_be_secret(value: str) -> bool:
    """Whether a value could be a secret at all: not a reference, a flag, a number or a placeholder."""
    return len(value) >= _VALUE_CHARACTERS_MIN and not re.fullmatch(_HARMLESS_VALUE, value.strip(), re.IGNORECASE)


def find_secret(name: str, value: str) -> Found | None:
    """The secret in a named value: by its shape, or a plain value under a name that promises one."""
    if shape := find_shape(value):
        return Found(shape, (value,))
    if names_a_secret(name) and may_be_secret(value):
        return Found("a plain value under a secret's name", (value,))
    return None


def find_secret_in_text(text: str) -> Found | None:
    """The secrets in a script or a metadata value, also where it is packed in base64 or gzip."""
    for packed, form in unpacked(text):
        named = [(name, value) for name, value in assignments(form) if names_a_secret(name) and may_be_secret(value)]
        shape = find_shape(form)
        if shape or named:
            values = [match[0] for match in _shape().finditer(form)] + [value for _, value in named]
            what = shape or f"a plain value for {named[0][0]}"
            return Found(what, (*values, *(() if form is text else (packed,))))
    return None


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Names and values that a script, YAML or JSON text sets."""
    for pattern in (_ASSIGNMENT, _FLAG):
        for match in re.finditer(pattern, text):
            if not _names_one_in_a_store(match):
                yield match["name"], match["value"].strip("\"'")


def _names_one_in_a_store(match: re.Match[str]) -> bool:
    start = match.start("name")
    return match.string[max(0, start - 2) : start] + match["name"] in _NAMES_OF_SECRETS


def unpacked(text: str) -> Iterator[tuple[str, str]]:
    """The text, and what it or a part of it holds in base64 and gzip: each as it stands, and as it reads."""
    yield text, text
    if re.fullmatch(_BASE64, text):
        if (form := _decoded(text)) is not None:
            yield text, form
        return
    for match in islice(re.finditer(_BASE64_INSIDE, text), _PARTS_MAX):
        if (form := _decoded(match[0])) is not None:
            yield match[0], form


def _decoded(packed: str) -> str | None:
    """What a text holds in base64, unzipped where it is zipped; ``None`` where it is no base64."""
    try:
        characters = "".join(packed.split())
        data = base64.b64decode(characters[: len(characters) // 4 * 4], validate=True)
    except (binascii.Error, ValueError):
        return None
    if data.startswith(b"\x1f\x8b"):
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, _UNPACKED_BYTES_MAX)
        except zlib.error:
            return None
    return data.decode("utf-8", errors="replace")


def redact(text: str, values: Iterable[str] = ()) -> str:
    """The text without anything that looks like a secret, and without the given values, as written or as JSON writes them."""
    forms = {form for value in values for form in _forms(value)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return re.sub(_FLAG, _redact_assignment, re.sub(_ASSIGNMENT, _redact_assignment, redact_shapes(text)))


def redact_shapes(text: str) -> str:
    """The text without anything that has the shape of a known credential; for our own words, which name variables."""
    return _shape().sub(REDACTED, text) if _may_hold_shape(text) else text


def _forms(value: str) -> Iterator[str]:
    """How a value may stand in a file: whole, escaped, and line by line."""
    for form in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], *value.splitlines()):
        if len(form.strip()) >= _VALUE_CHARACTERS_MIN:
            yield form.strip()


def _redact_assignment(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if names_a_secret(name) and may_be_secret(value.strip("\"'")):
        return match[0].replace(value, REDACTED)
    inner = value[1:-1]
    if value[0] in "\"'" and inner:
        return match[0].replace(inner, re.sub(_ASSIGNMENT, _redact_assignment, inner))
    return match[0]
