"""The books stay right whatever happens, in whatever order (LEDGER 3)."""

from __future__ import annotations

from hypothesis import Phase, settings

from tests.claim_machine import ClaimMachine

TestClaims = ClaimMachine.TestCase
TestClaims.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, phases=(Phase.generate,))
