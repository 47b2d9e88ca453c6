"""CpuSet behaves as a frozenset of numbers and speaks the kernel's two notations."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.cpuset import HIGHEST_ID, NO_CPUS, CpuSet, lowest, union

NUMBERS = st.frozensets(st.integers(min_value=0, max_value=2100), max_size=80)
RANGES = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 200)), max_size=8)


@settings(deadline=None)
@given(NUMBERS)
def test_its_text_reads_back_as_the_same_set(numbers: frozenset[int]) -> None:
    assert CpuSet.parse(str(CpuSet(numbers))) == CpuSet(numbers)


@settings(deadline=None)
@given(RANGES)
def test_ranges_may_overlap_and_come_in_any_order(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first}-{first + length}" for first, length in ranges)
    assert set(CpuSet.parse(text)) == {n for first, length in ranges for n in range(first, first + length + 1)}


@settings(deadline=None)
@given(NUMBERS, st.integers(0, 3))
def test_the_kernels_mask_reads_as_the_same_set_whatever_its_width(numbers: frozenset[int], spare_groups: int) -> None:
    groups = max(numbers, default=0) // 32 + 1 + spare_groups
    mask = sum(1 << number for number in numbers)
    text = ",".join(f"{mask >> 32 * n & 0xFFFFFFFF:08x}" for n in reversed(range(groups)))
    assert CpuSet.parse_hex(f"{text}\n") == CpuSet(numbers)


@settings(deadline=None)
@given(NUMBERS, NUMBERS)
def test_it_combines_as_a_frozenset_does(left: frozenset[int], right: frozenset[int]) -> None:
    a, b = CpuSet(left), CpuSet(right)
    combined = [frozenset(made) for made in (a | b, a & b, a - b, a ^ b)]
    assert combined == [left | right, left & right, left - right, left ^ right]
    assert (a <= b, a == b, a.isdisjoint(b)) == (left <= right, left == right, left.isdisjoint(right))
    assert hash(a | b) == hash(b | a)


@settings(deadline=None)
@given(NUMBERS)
def test_it_counts_and_lists_its_members_in_order(numbers: frozenset[int]) -> None:
    cpus = CpuSet(numbers)
    assert list(cpus) == sorted(numbers)
    assert (len(cpus), bool(cpus)) == (len(numbers), bool(numbers))
    assert all(number in cpus for number in numbers)
    assert 2101 not in cpus
    assert CpuSet.from_mask(cpus.mask) == cpus
    assert pickle.loads(pickle.dumps(cpus)) == cpus


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 900), st.integers(1, 40), st.integers(1, 40))
def test_a_stride_takes_the_first_few_of_each_group(first: int, length: int, used: int, more: int) -> None:
    size = used + more - 1
    taken = [n for n in range(first, first + length + 1) if (n - first) % size < used]
    assert list(CpuSet.parse(f"{first}-{first + length}:{used}/{size}")) == taken


def test_the_largest_sets_are_read_listed_and_written_whole() -> None:
    every, second = CpuSet.parse(f"0-{HIGHEST_ID - 1}"), CpuSet.parse(f"0-{HIGHEST_ID - 1}:1/2")
    assert list(every) == list(range(HIGHEST_ID))
    assert list(second) == list(range(0, HIGHEST_ID, 2))
    assert str(every - second) == ",".join(map(str, range(1, HIGHEST_ID, 2)))
    assert CpuSet.parse(str(second)) == second
    assert CpuSet.parse_hex(f"{second.mask:x}") == second


def test_a_group_may_be_larger_than_any_set() -> None:
    assert list(CpuSet.parse("4-6:2/999999999")) == [4, 5]
    assert list(CpuSet.parse("4-6:999999999/999999999")) == [4, 5, 6]


def test_sets_of_one_cpu_each_do_not_share_a_hash() -> None:
    """An int's hash is its rest by 2^61 - 1: of powers of two there are 61, and a dict of many would be a list."""
    assert len({hash(CpuSet((number,))) for number in range(4096)}) == 4096
    assert len({hash(CpuSet((number, number + 4096))) for number in range(4096)}) == 4096


@pytest.mark.parametrize("text", [f"0-{HIGHEST_ID}", f"0-{10 * HIGHEST_ID}:1/2", "9" * 5000, "0," * 10 * HIGHEST_ID])
def test_a_list_that_no_host_needs_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"beyond|longer than|is not a CPU number") as caught:
        CpuSet.parse(text)
    assert len(str(caught.value)) < 500


def test_a_mask_wider_than_any_host_is_refused_in_a_short_sentence() -> None:
    assert CpuSet.parse_hex("0" * HIGHEST_ID + "1") == CpuSet((0,))
    with pytest.raises(ValueError, match="beyond") as caught:
        CpuSet.parse_hex(f"{1 << HIGHEST_ID:x}")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        (" 1 , 3-4 ", [1, 3, 4]),
        ("0-7,^2,^4-5", [0, 1, 3, 6, 7]),
        ("^2,0-3", [0, 1, 3]),
        ("0-15:2/8", [0, 1, 8, 9]),
        ("0-3\0", [0, 1, 2, 3]),
        ("1023", [1023]),
    ],
)
def test_lists_are_read_as_the_kernel_libvirt_and_nova_write_them(text: str, members: list[int]) -> None:
    assert list(CpuSet.parse(text)) == members


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "3-1", "1--2", "0-7:3/2", "0-7:0/4", "0x3", "1.5", str(HIGHEST_ID), "²", "^", "1;2"]
)
def test_text_that_is_no_list_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a CPU number or range|runs backwards|uses more of a group") as caught:
        CpuSet.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["-1", "g", "1,000000002", "0x", "1_0", "ffffffff,,00000000", "+f", "1 2"])
def test_text_that_is_no_mask_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a hexadecimal mask") as caught:
        CpuSet.parse_hex(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "members"),
    [("", ""), ("0", ""), ("f", "0-3"), ("0x80000001", "0,31"), ("1,00000000", "32"), ("1,0", "32"), ("F0", "4-7")],
)
def test_masks_are_read_with_and_without_a_prefix(text: str, members: str) -> None:
    assert str(CpuSet.parse_hex(text)) == members


def test_it_cannot_be_changed() -> None:
    cpus = CpuSet((1, 2))
    with pytest.raises(AttributeError, match="immutable"):
        cpus.mask = NO_CPUS
    assert cpus == CpuSet.parse("1-2")


@given(st.lists(st.frozensets(st.integers(0, 300)), max_size=4))
def test_masks_have_the_union_and_the_lowest_bit_that_their_sets_have(sets: list[frozenset[int]]) -> None:
    everything = frozenset[int]().union(*sets)
    mask = union(CpuSet(some).mask for some in sets)
    assert (mask, lowest(mask)) == (CpuSet(everything).mask, min(everything, default=-1))


def test_it_names_its_lowest_member_and_the_empty_set_has_none() -> None:
    assert CpuSet((9, 4)).lowest == 4
    with pytest.raises(ValueError, match="no lowest"):
        _ = CpuSet().lowest


def test_it_equals_no_other_kind_of_set() -> None:
    assert CpuSet((1,)) != frozenset({1})
    assert "1" not in CpuSet((1,))
    assert -1 not in CpuSet((1,))
