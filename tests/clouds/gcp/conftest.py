"""A Google stub with the rates of us-central1 of August 2026, and credentials that reach it alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fakes.pricing import GcpMarket, google_prices, sku

US = ("us-central1",)


@pytest.fixture(scope="session")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


@pytest.fixture
def market() -> GcpMarket:
    on_demand = [
        sku("N1 Predefined Instance Core running in Americas", "0.031611", *US),
        sku("N1 Predefined Instance Ram running in Americas", "0.004237", *US, unit="GiBy.h"),
        sku("A2 Instance Core running in Americas", "0.031611", *US),
        sku("A2 Instance Ram running in Americas", "0.004237", *US, unit="GiBy.h"),
        sku("G2 Instance Core running in Americas", "0.024988", *US),
        sku("G2 Instance Ram running in Americas", "0.002927", *US, unit="GiBy.h"),
        sku("Nvidia Tesla A100 GPU running in Americas", "2.933908", *US),
        sku("Nvidia Tesla A100 80GB GPU running in Americas", "3.927", *US),
        sku("Nvidia L4 GPU running in Americas", "0.56004", *US),
        sku("Nvidia Tesla T4 GPU running in Americas", "0.35", *US),
        sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "11.277", *US),
        sku("SSD backed Local Storage", "0.08", *US, unit="GiBy.mo"),
    ]
    spot = [
        sku("Spot Preemptible G2 Instance Core running in Iowa", "0.0099", *US, usage="Preemptible"),
        sku("Spot Preemptible G2 Instance Ram running in Iowa", "0.00117", *US, usage="Preemptible", unit="GiBy.h"),
        sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa", "0.224", *US, usage="Preemptible"),
        sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Iowa", "0.14", *US, usage="Preemptible"),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "4.2", *US),
    ]
    decoys = [
        sku("Nvidia Tesla A100 80GB GPU attached to DWS Defined Duration VMs running in Americas", "1.846198", *US),
        sku("DWS Defined Duration A2 Core running in Americas", "0.01739", *US),
        sku("DWS Defined Duration A2 Ram running in Americas", "0.00233", *US, unit="GiBy.h"),
        sku("Reserved Nvidia Tesla A100 80GB GPU in Americas", "0", *US),
        sku("Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", "0.3", *US, usage="Commit1Yr"),
        sku("Nvidia L4 GPU running in Tokyo", "0.72", "asia-northeast1"),
        sku("Network Internet Egress from Americas", "0.12", *US, unit="GiBy"),
    ]
    return GcpMarket(
        skus=[*decoys, *on_demand, *spot],
        machines={
            "us-central1-a": ["g2-standard-4", "a2-highgpu-1g", "a2-ultragpu-1g", "n1-standard-4", "e2-medium"],
            "us-central1-b": ["g2-standard-4", "n1-standard-4"],
            "asia-northeast1-a": ["g2-standard-4"],
        },
        accelerators={"us-central1-a": ["nvidia-tesla-t4", "nvidia-l4", "ct6e"], "us-central1-b": ["nvidia-l4"]},
    )


@pytest.fixture
def google(market: GcpMarket, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The stub's address, known to gpuprov; no credentials yet."""
    with google_prices(market) as address:
        monkeypatch.setenv("GPUPROV_GCE_ENDPOINT", address)
        monkeypatch.setenv("GPUPROV_GCP_BILLING_ENDPOINT", address)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        yield address


@pytest.fixture
def account(google: str, private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account whose tokens come from the stub."""
    file = tmp_path / "account.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": "stub-project",
                "private_key_id": "1",
                "private_key": private_key,
                "client_email": "reader@stub-project.iam.gserviceaccount.com",
                "client_id": "1",
                "token_uri": f"{google}/token",
            }
        )
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    return file
