"""Field cases of claims that meet passes and one another, in some orders; `tox -e race` has more of them."""

from __future__ import annotations

from pathlib import Path

from tests.field import orders

FEW = 40


def test_audit_claim_not_yet_stored(tmp_path: Path) -> None:
    """LP#1454451."""
    orders.check_claims_between_passes(tmp_path, FEW, seed=1)


def test_audit_end_of_evacuation(tmp_path: Path) -> None:
    """LP#1896463."""
    orders.check_end_of_evacuation(tmp_path, FEW, seed=1)


def test_resize_revert_meets_audit(tmp_path: Path) -> None:
    """LP#1879878."""
    orders.check_reverts_between_passes(tmp_path, FEW, seed=1)


def test_group_two_live_migrations_one_target(tmp_path: Path) -> None:
    """LP#1821755. On a real daemon, by three ways in: tests/functional/test_race.py."""
    orders.check_two_members_at_once(tmp_path, FEW, seed=1)
