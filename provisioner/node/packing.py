"""Start scripts within what a cloud takes as user data.

Source: EC2 user guide, "Run commands when you launch an EC2 instance" (16 KB before base64; cloud-init unpacks gzip); Compute
Engine, "About VM metadata" (256 KB a value).
"""

from __future__ import annotations

import re
import zlib
from itertools import pairwise

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
    packed = _packed(raw)
    if len(packed) > most:
        raise Rejected(
            f"the start script has {len(raw)} bytes, {len(packed)} packed: {len(packed) - most} more than user data on {cloud} takes",
            where="run",
            remedy="keep long commands and settings of run in the container image, or in a file that run.data brings",
        )
    return packed


_BASE64 = re.compile(rb"[A-Za-z0-9+/]{1000,}")
_GZIP = 16 + zlib.MAX_WBITS


def _packed(raw: bytes) -> bytes:
    """As gzip; long base64 stands in blocks of its own, where each of its letters takes no more than its 6 bits."""
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP, 9)
    cuts = sorted({0, len(raw), *(edge for match in _BASE64.finditer(raw) for edge in match.span())})
    packed = b"".join(packer.compress(raw[start:end]) + packer.flush(zlib.Z_BLOCK) for start, end in pairwise(cuts))
    return packed + packer.flush()
