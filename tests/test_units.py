"""Units for people."""

from __future__ import annotations

from decimal import Decimal

import pytest

from provisioner.units import format_usd


@pytest.mark.parametrize(
    ("amount", "text"), [("1234.5", "$1,234.50"), ("-431.664", "-$431.66"), ("0", "$0.00"), ("-0.001", "$0.00")]
)
def test_an_amount_has_its_sign_before_the_dollar(amount: str, text: str) -> None:
    assert format_usd(Decimal(amount)) == text
