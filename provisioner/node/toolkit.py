"""The one place of what a machine installs where its image lacks a container engine or the GPU toolkit, as of 2026-11-30.

The engine is the distribution's own package (``docker.io`` of Debian and Ubuntu, ``docker`` of Amazon Linux 2023), signed by the
distribution's key, which the image holds; its archives keep the newest build alone, so no exact version can be asked for there.
The toolkit is NVIDIA's, in four packages of one exact version, from a repository signed by one key: it is fetched over TLS, and
refused where its fingerprint is another.

Sources: NVIDIA Container Toolkit documentation, "Installing the NVIDIA Container Toolkit" (repository, key, package names, pinning);
the key's fingerprint as GoogleCloudDataproc/initialization-actions ``gpu/install_gpu_driver.sh`` asks a key server for it.
"""

from __future__ import annotations

TOOLKIT_VERSION = "1.19.0-1"
TOOLKIT_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
