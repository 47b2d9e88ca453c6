"""Which properties are known, which are for others to decide, and which mean nothing to anybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from agent.core.flavor.cells import NUMBERED
from agent.core.flavor.likely import likely
from agent.core.flavor.reading import Reading
from agent.core.flavor.resources import left_to_others
from agent.core.words import brief, some

_BOTH = frozenset(
    {
        "cpu_policy",
        "cpu_thread_policy",
        "cpu_realtime_mask",
        "cpu_sockets",
        "cpu_cores",
        "cpu_threads",
        "cpu_max_sockets",
        "cpu_max_cores",
        "cpu_max_threads",
        "mem_page_size",
        "locked_memory",
        "mem_encryption",
        "mem_encryption_model",
        "numa_nodes",
        "pci_numa_affinity_policy",
    }
)
_DECIDED_FLAVOR = _BOTH | {"cpu_realtime", "cpu_dedicated_mask", "emulator_threads_policy", "pmem"}
_DECIDED_IMAGE = _BOTH | {"firmware_type", "firmware_stateless", "machine_type", "video_model"}
_BUILT_BOTH = frozenset(
    {
        "boot_menu",
        "ephemeral_encryption",
        "ephemeral_encryption_format",
        "maxphysaddr_bits",
        "maxphysaddr_mode",
        "pmu",
        "redirected_usb_ports",
        "serial_port_count",
        "sound_model",
        "tpm_model",
        "tpm_version",
        "usb_model",
        "viommu_model",
        "vif_multiqueue_enabled",
        "virtio_packed_ring",
        "watchdog_action",
    }
)
_BUILT_FLAVOR = _BUILT_BOTH | {"hide_hypervisor_id", "tpm_secret_security"}
_BUILT_IMAGE = _BUILT_BOTH | {
    "architecture",
    "auto_disk_config",
    "cdrom_bus",
    "device_id",
    "disk_bus",
    "disk_type",
    "emulation_architecture",
    "ephemeral_encryption_secret_uuid",
    "floppy_bus",
    "input_bus",
    "ipxe_boot",
    "pointer_model",
    "qemu_guest_agent",
    "rescue_bus",
    "rescue_device",
    "rng_model",
    "scsi_model",
    "time_hpet",
    "video_ram",
    "vif_model",
    "vm_mode",
}
_KNOWN_FLAVOR = _DECIDED_FLAVOR | _BUILT_FLAVOR
_KNOWN_IMAGE = _DECIDED_IMAGE | _BUILT_IMAGE
_OTHER_FLAVOR = frozenset({"hw_rng:allowed", "hw_rng:rate_bytes", "hw_rng:rate_period", "hw_video:ram_max_mb"})


def unknown(reading: Reading) -> tuple[str, ...]:
    """The properties that nobody gives a meaning to, sorted; a note for those that stand in the wrong place or are like
    one that counts."""
    flavor = [key for key in reading.flavor_words if _is_strange_in_flavor(key)]
    image = [key for key in reading.image_words if _is_strange_in_image(key)]
    others = [key for key in reading.flavor_words if not key.startswith(("hw:", "hw_")) and _may_be_mistyped(key)]
    for key in sorted({*flavor, *others}):
        _note_likely(reading, key, likely(key, _KNOWN_FLAVOR, "hw:"), "flavor")
    others = [key for key in reading.image_words if not key.startswith(("hw:", "hw_")) and _may_be_mistyped(key)]
    for key in sorted({*image, *others}):
        _note_likely(reading, key, likely(key, _KNOWN_IMAGE, "hw_"), "image")
    return tuple(sorted({*map(brief, flavor), *map(brief, image)}))


def _may_be_mistyped(key: str) -> bool:
    """What has another prefix is for somebody else."""
    return ":" not in key or key.strip().lower().startswith("hw:")


def _note_likely(reading: Reading, key: str, meant: str | None, place: Literal["flavor", "image"]) -> None:
    right, wrong = ("hw:", "hw_") if place == "flavor" else ("hw_", "hw:")
    guess = f" Is {meant} meant?" if meant else ""
    if key.startswith(wrong):
        reading.note(f"{brief(key)} stands in the {place}, whose properties begin with {right} instead.{guess}")
    elif guess:
        reading.note(f"{brief(key)} of the {place} means nothing here.{guess}")


def note_others(reading: Reading) -> None:
    """Say which properties are known and have no part in what is decided here, and which are empty."""
    if reading.flavor("pmem") is not None:
        reading.note("hw:pmem gives the guest cells, but persistent memory is not given out here.")
    elsewhere = left_to_others(reading)
    if elsewhere:
        reading.note(f"Left to the scheduler: {_names(elsewhere)}.")
    built = [f"hw:{name}" for name in _BUILT_FLAVOR if f"hw:{name}" in reading.flavor_words]
    built += [f"hw_{name}" for name in _BUILT_IMAGE if f"hw_{name}" in reading.image_words]
    built += [key for key in _OTHER_FLAVOR if key in reading.flavor_words]
    if built:
        reading.note(f"They shape the guest and not where it fits: {_names(built)}.")
    empty = list(_empty(reading))
    if empty:
        reading.note(f"They are empty, so as good as not set: {_names(empty)}.")


def _is_strange_in_flavor(key: str) -> bool:
    known = key[3:] in _KNOWN_FLAVOR or NUMBERED.fullmatch(key) is not None
    return (key.startswith("hw:") and not known) or (key.startswith("hw_") and key not in _OTHER_FLAVOR)


def _is_strange_in_image(key: str) -> bool:
    known = key[3:] in _KNOWN_IMAGE or NUMBERED.fullmatch(key) is not None
    return (key.startswith("hw_") and not known) or key.startswith("hw:")


def _empty(reading: Reading) -> Iterator[str]:
    for words in (reading.flavor_words, reading.image_words):
        yield from (key for key, value in words.items() if key.startswith(("hw:", "hw_")) and not value.strip())


def _names(keys: list[str]) -> str:
    return some([brief(key) for key in sorted(keys)], most=20)
