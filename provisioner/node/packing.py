"""Start scripts within what a cloud takes as user data.

Source: EC2 user guide, "Run commands when you launch an EC2 instance" (16 KB before base64; cloud-init unpacks gzip); Compute
Engine, "About VM metadata" (256 KB a value).
"""

from __future__ import annotations

import gzip

from provisioner.errors import Rejected

USER_DATA_BYTES_MAX = {"aws": 16 * 1024, "gcp": 256 * 1024}
"""Cloud -> bytes of a machine's user data."""


def packed_user_data(text: str, cloud: str) -> bytes:
    """A start script within the cloud's limit; a longer one is packed, always to the same bytes.

    Raises:
        Rejected: it does not fit even so.
    """
    raw, most = text.encode(), USER_DATA_BYTES_MAX[cloud]
    if len(raw) <= most:
        return raw
    packed = gzip.compress(raw, 9, mtime=0)
    if len(packed) > most:
        raise Rejected(
            f"the start script has {len(raw)} bytes, {len(packed)} packed: {len(packed) - most} more than user data on {cloud} takes",
            where="run",
            remedy="keep long commands and settings of run in the container image, or in a file that run.data brings",
        )
    return packed
