"""Spot interruption bands of the AWS Spot Advisor."""

from __future__ import annotations

from provisioner.catalog.files import CatalogFiles

Band = tuple[float, float]
"""Share of machines interrupted in a month, low and high; the open top band "over 20 %" is (0.2, 1.0)."""


def read_interruption_bands(files: CatalogFiles) -> dict[tuple[str, str, str], Band]:
    """Bands by (cloud, instance type, region). They are of 2025-06: an order of magnitude, not a forecast.

    Source: AWS Spot Advisor, kept by github alexei-led/spotinfo.
    """
    return {
        (cloud, name, region): (float(low) / 100, float(high) / 100)
        for cloud, name, region, low, high in files.rows(
            "spot_interruption.csv",
            *("cloud", "instance_type", "region", "interruption_pct_low", "interruption_pct_high"),
        )
    }
