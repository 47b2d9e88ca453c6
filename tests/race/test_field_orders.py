"""The field cases of claims that meet passes and one another, in a thousand orders each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.field import orders

SEED = int(os.environ.get("RACE_SEED", "1000"))
CASES = (
    orders.check_claims_between_passes,
    orders.check_end_of_evacuation,
    orders.check_reverts_between_passes,
    orders.check_two_members_at_once,
)


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_a_field_case_holds_in_a_thousand_orders(check: Callable[[Path, int, int], None], tmp_path: Path) -> None:
    check(tmp_path, 1000, SEED)
