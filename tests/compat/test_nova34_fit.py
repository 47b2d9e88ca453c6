"""nova 34 and we say yes to the same guests, but where nova is known to be wrong; and nova's books take our pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.compat.fit_asked import NOVA, see
from tests.compat.fit_cases import Case
from tests.compat.fit_differences import DIFFERENCES, explained_by, symptoms, unexplained
from tests.compat.fit_random import random_case, random_device_case
from tests.compat.fit_shown import AGREED, SHOWN
from tests.compat.nova_process import Ask, nova_process

BATCH, BATCHES, DEVICE_BATCHES = 200, 20, 8


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    with nova_process(NOVA) as asked:
        yield asked


@pytest.mark.parametrize(
    ("batch", "made"),
    [(batch, random_case) for batch in range(BATCHES)]
    + [(batch, random_device_case) for batch in range(DEVICE_BATCHES)],
)
def test_nova_and_we_say_yes_to_the_same_guests(batch: int, made: Callable[[int], Case], ask: Ask) -> None:
    seen = {seed: see(made(seed), ask) for seed in range(batch * BATCH, (batch + 1) * BATCH)}
    assert {seed: faults for seed, one in seen.items() if (faults := unexplained(one))} == {}
    # else a batch of refusals would prove nothing
    assert sum(1 for one in seen.values() if one.nova["fits"] and one.given is not None) > BATCH // 10


@pytest.mark.parametrize("name", AGREED)
def test_what_once_was_answered_wrongly_is_answered_alike(name: str, ask: Ask) -> None:
    case, fits = AGREED[name]
    seen = see(case, ask)
    assert (list(symptoms(seen)), seen.nova["fits"]) == ([], fits)


@pytest.mark.parametrize("name", [one.name for one in DIFFERENCES])
def test_each_difference_is_there_and_accounts_for_all_that_is_seen_of_it(name: str, ask: Ask) -> None:
    seen = see(SHOWN[name], ask)
    found = list(symptoms(seen))
    assert found
    assert {symptom: explained_by(seen, symptom) for symptom in found} == {symptom: [name] for symptom in found}
