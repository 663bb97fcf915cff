"""What a spec says under ``aws``: which of the user's own objects are used instead of those found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """The user's own objects; ``None`` and empty: the account's defaults."""

    profile: str | None = None
    vpc: str | None = None
    subnets: tuple[str, ...] = ()
    instance_profile: str | None = None
    kms_key: str | None = None
    image: str | None = None
    """The pinned image, whose size is looked at before anything is made; a launch keeps its images itself."""
    account: str | None = None
    """The account that everything must be asked of; no key of the spec: a stack knows where it was made."""

    @classmethod
    def of(cls, part: Mapping[str, Any] | None) -> AwsSettings:
        """The settings of a spec's ``aws`` section, as its document holds it; keys that are not ours are left out."""
        given = part or {}
        return cls(
            profile=_text(given.get("profile")),
            vpc=_text(given.get("vpc")),
            subnets=tuple(str(subnet) for subnet in given.get("subnets") or ()),
            instance_profile=_text(given.get("instance_profile")),
            kms_key=_text(given.get("kms_key")),
            image=_text(given.get("image")),
        )


def _text(value: Any) -> str | None:
    return str(value) if value else None
