"""Flavors, images and ports to ask nova and this project about: hand-made ones, random ones, and where both differ."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Words = dict[str, str]
PORT = "00000000-0000-4000-8000-00000000000{}"

ALIASES: tuple[Words, ...] = (
    {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8", "numa_policy": "preferred"},
    {"name": "qat", "vendor_id": "8086", "product_id": "0443", "device_type": "type-VF"},
    {"name": "qat", "vendor_id": "8086", "product_id": "37c9", "device_type": "type-VF"},
    {"name": "nic", "vendor_id": "8086", "product_id": "10fb", "device_type": "type-PF", "live_migratable": "yes"},
)


def case(
    extra_specs: Words | None = None,
    properties: Words | None = None,
    *,
    vcpus: int = 4,
    memory_mb: int = 4096,
    ports: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    """As plain data, which JSON can carry to the process that has nova."""
    return {
        "vcpus": vcpus,
        "memory_mb": memory_mb,
        "extra_specs": extra_specs or {},
        "properties": properties or {},
        "ports": list(ports),
        "alias": list(ALIASES),
    }


def port(
    number: int, kind: str, net: str | None = None, policy: str | None = None, *, trusted: bool | None = None
) -> dict[str, Any]:
    return {
        "id": PORT.format(number),
        "vnic_type": kind,
        "physical_network": net,
        "numa_affinity_policy": policy,
        "trusted": trusted,
    }


_POLICIES = ("dedicated", "mixed", "shared")
_THREADS = ("prefer", "require", "isolate")
_NEAR = ("required", "preferred", "legacy", "socket")
_SIZES = ("small", "large", "any", "4", "2048", "1048576", "2MB", "1GiB", "16Mbit", "2GB")
_BOOLS = ("true", "false", "yes", "0")
_MASKS = ("0", "0-1", "^0", "^0-1", "0-3", "1,3", "0-2,^1", "^0,^2", "2-9", "0-3,^0-3", "x", "3-1")
_COUNTS = ("1", "2", "3", "4", "8", "0", "two")
_MODELS = ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx")

BOTH: Mapping[str, tuple[str, ...]] = {
    "cpu_policy": _POLICIES * 4 + ("pinned",),
    "cpu_thread_policy": _THREADS * 4 + ("many",),
    "cpu_realtime_mask": _MASKS,
    "mem_page_size": _SIZES + ("2048kB", "huge"),
    "locked_memory": _BOOLS,
    "mem_encryption": _BOOLS,
    "mem_encryption_model": _MODELS,
    "numa_nodes": ("1", "2", "2", "2", "3", "4", "0", "two", "-1"),
    "pci_numa_affinity_policy": _NEAR * 4 + ("near",),
    "cpu_sockets": _COUNTS,
    "cpu_cores": _COUNTS,
    "cpu_threads": _COUNTS,
    "cpu_max_sockets": _COUNTS,
    "cpu_max_cores": _COUNTS,
    "cpu_max_threads": _COUNTS,
}
FLAVOR: Mapping[str, tuple[str, ...]] = {
    "hw:cpu_realtime": _BOOLS,
    "hw:cpu_dedicated_mask": _MASKS,
    "hw:emulator_threads_policy": ("share", "isolate", "isolate", "apart"),
    "hw:pmem": ("4GB", "a,b"),
    "resources:PCPU": ("4", "5", "2"),
    "resources:VCPU": ("4", "2", "0"),
    "resources1:PCPU": ("2",),
    "trait:HW_CPU_HYPERTHREADING": ("required", "forbidden"),
    "pci_passthrough:alias": ("gpu:1", "gpu:1,qat:2", " nic : 1", "fpga:1", "gpu", "gpu:x", "gpu:1:2", ",gpu:1"),
    "hw:boot_menu": ("true",),
    "hw:no_such_thing": ("1",),
}
IMAGE: Mapping[str, tuple[str, ...]] = {
    "hw_firmware_type": ("uefi", "uefi", "uefi", "uefi", "bios"),
    "hw_firmware_stateless": ("true", "true", "false"),
    "hw_machine_type": ("q35", "pc-q35-8.2", "pc"),
    "hw_video_model": ("none", "none", "vga"),
    "trait:HW_CPU_HYPERTHREADING": ("required",),
    "os_type": ("linux",),
}
_KINDS = (
    "normal",
    "direct",
    "direct",
    "direct-physical",
    "macvtap",
    "vdpa",
    "remote-managed",
    "virtio-forwarder",
    "baremetal",
    "smart-nic",
)
_CELL_CPUS = ("0", "1", "0-1", "2-3", "0-3", "0,2", "1,3", "4-5", "3", "x")
_CELL_MEMORY = ("1024", "2048", "2048", "3072", "4096", "x")


def random_cases(number: int, seed: int) -> list[dict[str, Any]]:
    """Mostly a few properties each, so that many are accepted; now and then many."""
    dice = random.Random(seed)
    return [_random_case(dice) for _ in range(number)]


def _random_case(dice: random.Random) -> dict[str, Any]:
    properties = 2 if dice.random() < 0.6 else 5
    specs = _some(dice, {**{f"hw:{key}": words for key, words in BOTH.items()}, **FLAVOR}, properties)
    image = _some(dice, {**{f"hw_{key}": words for key, words in BOTH.items()}, **IMAGE}, properties // 2)
    if dice.random() < 0.3:
        specs["hw:cpu_policy"] = dice.choice(_POLICIES)
    if dice.random() < 0.3:
        (specs if dice.random() < 0.7 else image).update(_cells(dice, specs, image))
    ports = [
        port(n, dice.choice(_KINDS), *_wishes(dice), trusted=dice.choice((None, None, True, False)))
        for n in range(dice.choice((0, 0, 0, 1, 2)))
    ]
    size = dice.choice((1, 2, 3, 4, 4, 4, 6, 8, 12)), dice.choice((512, 1024, 3072, 4096, 4096))
    return case(specs, image, vcpus=size[0], memory_mb=size[1], ports=tuple(ports))


def _wishes(dice: random.Random) -> tuple[str | None, str | None]:
    return dice.choice((None, "physnet0", "Physnet1")), dice.choice((None, None, *_NEAR))


def _some(dice: random.Random, words: Mapping[str, tuple[str, ...]], most: int) -> Words:
    keys = dice.sample(sorted(words), dice.randint(0, most))
    return {key: dice.choice(words[key]) for key in keys}


def _cells(dice: random.Random, specs: Words, image: Words) -> Words:
    """Cells by hand, half of the time such that they hold together."""
    start = "hw:" if dice.random() < 0.7 else "hw_"
    if dice.random() < 0.5:
        specs.setdefault("hw:numa_nodes", "2")
        image.pop("hw_numa_nodes", None)
        half = dice.choice((("0-1", "2-3"), ("0,2", "1,3"), ("0", "1-3"), ("0-3", "4-7")))
        memory = dice.choice((("2048", "2048"), ("1024", "3072"), ("512", "512")))
    else:
        half = (dice.choice(_CELL_CPUS), dice.choice(_CELL_CPUS))
        memory = (dice.choice(_CELL_MEMORY), dice.choice(_CELL_MEMORY))
    said = {f"{start}numa_cpus.{n}": cpus for n, cpus in enumerate(half)}
    said |= {f"{start}numa_mem.{n}": amount for n, amount in enumerate(memory)}
    if dice.random() < 0.15:
        said.pop(dice.choice(sorted(said)))
    return said


class Difference(NamedTuple):
    """Where this project means to answer otherwise than nova 34. why: what nova does, and why it is not followed here.
    example: a case in which they differ. applies: whether a case is of that kind."""

    why: str
    example: dict[str, Any]
    applies: Callable[[dict[str, Any]], bool]


def _values(one: dict[str, Any], name: str) -> Iterator[str]:
    """What flavor and image say of a property."""
    for key, words in ((f"hw:{name}", one["extra_specs"]), (f"hw_{name}", one["properties"])):
        if key in words:
            yield words[key]


def _flavor(one: dict[str, Any], name: str) -> str | None:
    found: str | None = one["extra_specs"].get(name)
    return found


def _image(one: dict[str, Any], name: str) -> str | None:
    found: str | None = one["properties"].get(name)
    return found


def _numbered(one: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    for words in (one["extra_specs"], one["properties"]):
        for key, value in words.items():
            match = re.fullmatch(r"hw[:_](numa_(?:cpus|mem))\.(\d+)", key)
            if match:
                yield f"{key[:3]}{match[1]}", int(match[2]), value


def _has_gap(one: dict[str, Any]) -> bool:
    numbers: dict[str, set[int]] = {}
    for name, number, _ in _numbered(one):
        numbers.setdefault(name, set()).add(number)
    return any(found != set(range(len(found))) for found in numbers.values())


def _has_no_cells(one: dict[str, Any]) -> bool:
    return not (
        any(_values(one, "numa_nodes"))
        or any(_values(one, "mem_page_size"))
        or {"dedicated", "mixed"} & set(_values(one, "cpu_policy"))
        or any(":PCPU" in key or key == "hw:pmem" for key in one["extra_specs"])
    )


_SEV = {"hw:mem_encryption": "true", "hw:mem_encryption_model": "amd-sev-snp"}
_TDX = {"hw:mem_encryption": "true", "hw:mem_encryption_model": "intel-tdx"}
_UEFI = {"hw_firmware_type": "uefi"}
_STATELESS = {**_UEFI, "hw_firmware_stateless": "true"}
_TWO = {"hw:numa_nodes": "2", "hw:numa_mem.0": "1024", "hw:numa_mem.1": "3072"}

HAND_MADE: tuple[dict[str, Any], ...] = (
    case({"hw:mem_encryption": "true"}, _UEFI),
    case({"hw:mem_encryption": "true", "hw:locked_memory": "false"}, _UEFI),
    case({"hw:mem_encryption": "true"}, {**_UEFI, "hw_machine_type": "pc"}),
    case(_SEV, _UEFI),
    case(_SEV, _STATELESS),
    case(_TDX, _STATELESS),
    case(_TDX, {**_STATELESS, "hw_video_model": "vga"}),
    case(_TDX, {**_STATELESS, "hw_video_model": "none", "hw_machine_type": "pc-q35-8.2"}),
    case({"hw:cpu_max_sockets": "2", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "1"}),
    case({"hw:cpu_max_sockets": "1"}, {"hw_cpu_max_threads": "2", "hw_cpu_threads": "2"}, vcpus=12),
    case({"hw:cpu_max_threads": "1", "hw:cpu_threads": "2", "hw:cpu_sockets": "2"}, vcpus=8),
    case({**_TWO, "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "1-3"}),
    case({**_TWO, "hw:numa_cpus.0": "0-1", "hw:numa_cpus.1": "1-3"}),
    case({**_TWO, "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "1-2"}),
    case(_TWO, {"hw_numa_cpus.0": "0", "hw_numa_cpus.1": "1-3"}),
    case(
        {
            **_TWO,
            "hw:cpu_policy": "mixed",
            "hw:cpu_dedicated_mask": "0-1",
            "hw:numa_cpus.0": "0,2",
            "hw:numa_cpus.1": "1,3",
        }
    ),
    case({"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"}),
    case({"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:emulator_threads_policy": "isolate"}),
    case(
        {"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"},
        {"hw_cpu_realtime_mask": "2"},
    ),
    case({"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"}),
    case({"resources:PCPU": "5", "hw:emulator_threads_policy": "isolate", "trait:HW_CPU_HYPERTHREADING": "forbidden"}),
    case({"resources1:PCPU": "2", "resources2:PCPU": "2", "trait1:HW_CPU_HYPERTHREADING": "required"}),
    case({"hw:mem_page_size": "any", "hw:locked_memory": "true"}, {"hw_mem_page_size": "1GB"}),
    case({"hw:pmem": "a", "pci_passthrough:alias": "nic:1,qat:2"}, ports=(port(1, "direct", None, "required"),)),
)


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "nova lets a flavor's thread policy prefer win over what the image asks for. prefer leaves it open, so the "
        "image narrows it, as it does where the flavor says nothing.",
        case({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "isolate"}),
        lambda one: _flavor(one, "hw:cpu_thread_policy") == "prefer" and "hw_cpu_thread_policy" in one["properties"],
    ),
    Difference(
        "nova takes any word that is not a yes for a no. A misspelt yes would go unnoticed, so it is refused.",
        case({"hw:cpu_realtime": "ture"}),
        lambda one: any(
            value in {"ture", "maybe"}
            for name in ("cpu_realtime", "locked_memory", "mem_encryption")
            for value in _values(one, name)
        ),
    ),
    Difference(
        "nova takes page size 0 for none, one below 0 as it is, and rounds parts of a KiB down. No host has those.",
        case({"hw:mem_page_size": "0"}),
        lambda one: any(re.fullmatch(r"0|-.*|.*\..*", value) for value in _values(one, "mem_page_size")),
    ),
    Difference(
        "nova stops at the first number that is missing of hw:numa_cpus.N or hw:numa_mem.N and drops the others.",
        case(
            {
                "hw:numa_nodes": "1",
                "hw:numa_cpus.0": "0-3",
                "hw:numa_mem.0": "4096",
                "hw:numa_cpus.2": "0",
            }
        ),
        _has_gap,
    ),
    Difference(
        "nova does not look at a flavor's hw:numa_cpus.N and hw:numa_mem.N where the guest gets no cells; text that is "
        "no list or number is refused here, as nova does with an image's.",
        case({"hw:numa_cpus.0": "x", "hw:numa_mem.0": "4096"}),
        lambda one: _has_no_cells(one) and any(key.startswith("hw:numa_") for key in one["extra_specs"]),
    ),
    Difference(
        "nova accepts a cell without vCPUs, and one of 0 MiB or below when the sum is right. No guest can have such.",
        case(
            {
                "hw:numa_nodes": "2",
                "hw:numa_cpus.0": "0-3",
                "hw:numa_mem.0": "4096",
                "hw:numa_cpus.1": "0,^0",
                "hw:numa_mem.1": "0",
            }
        ),
        lambda one: any(
            value in {"0", "0,^0"} for name, _, value in _numbered(one) if value != "0" or name.endswith("mem")
        ),
    ),
    Difference(
        "nova reads numbers as Python does (+2, 1_0, blanks); here they are decimal digits.",
        case({"hw:cpu_sockets": "+2"}),
        lambda one: any("+" in value or "_" in value for value in one["extra_specs"].values()),
    ),
    Difference(
        "nova lets flavor and image contradict each other about hyper-threading, and the flavor wins. Placement "
        "refuses to look for a host with a trait that is both required and forbidden.",
        case(
            {"hw:cpu_policy": "dedicated", "trait:HW_CPU_HYPERTHREADING": "forbidden"},
            {"trait:HW_CPU_HYPERTHREADING": "required"},
        ),
        lambda one: (
            _flavor(one, "trait:HW_CPU_HYPERTHREADING") == "forbidden"
            and _image(one, "trait:HW_CPU_HYPERTHREADING") == "required"
        ),
    ),
    Difference(
        "nova leaves text that is no number in resources:PCPU to Placement to refuse, and takes the guest for shared.",
        case({"resources:PCPU": "four"}),
        lambda one: any(
            key.startswith("resources") and not value.isdecimal() for key, value in one["extra_specs"].items()
        ),
    ),
    Difference(
        "nova counts every resource class and trait that begins with the name, as in resources:VCPU_X.",
        case({"resources:PCPU_OTHER": "4"}),
        lambda one: any(re.match(r"resources\d*:[VP]CPU.", key) for key in one["extra_specs"]),
    ),
    Difference(
        "nova accepts a request for 0 devices or fewer of an alias.",
        case({"pci_passthrough:alias": "gpu:0"}),
        lambda one: re.search(r":\s*(0|-\d+)\b", _flavor(one, "pci_passthrough:alias") or "") is not None,
    ),
    Difference(
        "nova makes two requests of an alias that is named twice; here their counts are added up.",
        case({"pci_passthrough:alias": "gpu:1,gpu:2"}),
        lambda one: (_flavor(one, "pci_passthrough:alias") or "").count("gpu:") > 1,
    ),
    Difference(
        "nova accepts sockets, cores or threads below 0 and then prefers nothing.",
        case({"hw:cpu_sockets": "-1"}),
        lambda one: any(
            value.startswith("-") for part in ("sockets", "cores", "threads") for value in _values(one, f"cpu_{part}")
        ),
    ),
    Difference(
        "nova takes an image's hw_numa_nodes of 0 for nothing said beside a flavor's number.",
        case({"hw:numa_nodes": "2"}, {"hw_numa_nodes": "0"}),
        lambda one: _image(one, "hw_numa_nodes") == "0" and _flavor(one, "hw:numa_nodes") is not None,
    ),
    Difference(
        "nova refuses an empty number of sockets, cores or threads of a flavor; here empty is not set, as elsewhere.",
        case({"hw:cpu_sockets": ""}),
        lambda one: "" in one["extra_specs"].values(),
    ),
    Difference(
        "nova looks at hw:mem_encryption_model only where memory is encrypted; a word that is none is refused here.",
        case({"hw:mem_encryption_model": "rot13"}),
        lambda one: any(value not in _MODELS for value in _values(one, "mem_encryption_model")),
    ),
)


REFUSALS: Mapping[str, frozenset[str]] = {
    "BadRequirementEmulatorThreadsPolicy": frozenset({"emulator-policy-unpinned"}),
    "CPUThreadPolicyConfigurationInvalid": frozenset({"thread-policy-unpinned", "hyperthreading-unpinned"}),
    "FlavorImageConflict": frozenset({"encryption-conflict", "encryption-model-conflict", "encryption-firmware"}),
    "FlavorImageLockedMemoryConflict": frozenset({"locked-memory-conflict"}),
    "ImageCPUPinningForbidden": frozenset({"cpu-policy-conflict"}),
    "ImageCPUThreadPolicyForbidden": frozenset({"thread-policy-conflict"}),
    "ImageNUMATopologyAsymmetric": frozenset({"cells-uneven"}),
    "ImageNUMATopologyCPUDuplicates": frozenset({"cell-cpu-shared"}),
    "ImageNUMATopologyCPUOutOfRange": frozenset({"cell-cpu-range"}),
    "ImageNUMATopologyCPUsUnassigned": frozenset({"cell-cpu-unassigned"}),
    "ImageNUMATopologyForbidden": frozenset({"cells-twice", "cell-cpus-twice", "cell-memory-twice"}),
    "ImageNUMATopologyIncomplete": frozenset({"cells-incomplete"}),
    "ImageNUMATopologyMemoryOutOfRange": frozenset({"cell-memory-sum"}),
    "ImagePCINUMAPolicyForbidden": frozenset({"pci-policy-conflict", "pci-policy-unknown"}),
    "ImageVCPULimitsRangeExceeded": frozenset({"topology-maximum"}),
    "ImageVCPULimitsRangeImpossible": frozenset({"topology-impossible"}),
    "ImageVCPUTopologyRangeExceeded": frozenset({"topology-beyond-maximum"}),
    "Invalid": frozenset({"realtime-list", "dedicated-mask-list", "cell-cpus-list", "encryption-model-unknown"}),
    "InvalidCPUAllocationPolicy": frozenset({"cpu-policy-unknown"}),
    "InvalidCPUThreadAllocationPolicy": frozenset({"thread-policy-unknown"}),
    "InvalidEmulatorThreadsPolicy": frozenset({"emulator-policy-unknown"}),
    "InvalidMachineType": frozenset({"encryption-machine"}),
    "InvalidMixedInstanceDedicatedMask": frozenset(
        {"dedicated-mask-empty", "dedicated-mask-whole", "dedicated-mask-range"}
    ),
    "InvalidNUMANodesNumber": frozenset({"cells-number"}),
    "InvalidPCINUMAAffinity": frozenset({"pci-policy-unknown"}),
    "InvalidRequest": frozenset(
        {"resources-beside-policy", "resources-both", "pcpu-count", "hyperthreading-beside-policy", "topology-number"}
    ),
    "InvalidVideoMode": frozenset({"encryption-video"}),
    "LockMemoryForbidden": frozenset({"locked-memory-pages"}),
    "MemoryPageSizeForbidden": frozenset({"page-size-image-alone", "page-size-conflict"}),
    "MemoryPageSizeInvalid": frozenset({"page-size-unknown"}),
    "PciRequestAliasNotDefined": frozenset({"alias-unknown"}),
    "RealtimeConfigurationInvalid": frozenset({"realtime-unpinned"}),
    "RealtimeMaskNotFoundOrInvalid": frozenset({"realtime-empty", "realtime-whole", "realtime-range"}),
    "RequiredMixedInstancePolicy": frozenset({"dedicated-mask-policy"}),
    "RequiredMixedOrRealtimeCPUMask": frozenset({"mixed-no-mask", "mixed-two-masks"}),
    "StatelessFirmwareRequired": frozenset({"encryption-stateless"}),
    "ValueError": frozenset(
        {
            "alias-form",
            "cell-memory-number",
            "cells-number",
            "cpu-policy-unknown",
            "encryption-model-unknown",
            "pci-policy-unknown",
            "thread-policy-unknown",
            "topology-number",
        }
    ),
}
"""nova's exceptions, and which of our faults say the same. nova stops at the first; all are told here."""
