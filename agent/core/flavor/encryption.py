"""Encrypted memory: whether what is said of it holds together, and whether it keeps the memory in RAM."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.flavor.reading import UNREAD, Reading
from agent.core.request_faults import FaultKind, Property
from agent.core.values import Value


class _Model(Value, frozen=True, kw_only=True):
    """What the processor's kind of encryption needs of the guest."""

    locks: bool = False
    stateless: bool = False
    no_video: bool = False


_MODELS: Mapping[str, _Model] = {
    "amd-sev": _Model(locks=True),
    "amd-sev-es": _Model(locks=True),
    "amd-sev-snp": _Model(stateless=True),
    "intel-tdx": _Model(stateless=True, no_video=True),
}
_DEFAULT = "amd-sev"


def encryption_locks(reading: Reading) -> bool:
    """True when the guest's memory is encrypted by a kind that needs it in RAM; faults are kept in the reading."""
    flavor, image = reading.both("mem_encryption")
    by_flavor = reading.truth(flavor, "encryption-unclear")
    by_image = reading.truth(image, "encryption-unclear")
    flavor_model, image_model = (
        reading.word(said, _MODELS, "encryption-model-unknown") for said in reading.both("mem_encryption_model")
    )
    if by_flavor is UNREAD or by_image is UNREAD or not (by_flavor or by_image):
        return False
    if flavor and image and by_flavor != by_image:
        _refuse_pair(reading, "encryption-conflict", flavor, image)
        return False
    asked = flavor or image
    if asked is None or flavor_model is UNREAD or image_model is UNREAD or not _models_agree(reading):
        return False
    model = flavor_model or image_model or _MODELS[_DEFAULT]
    _check_image(reading, asked, model)
    reading.note(f"{asked} is kept in mind for locking alone: a host's encryption contexts are not counted here.")
    return model.locks


def _models_agree(reading: Reading) -> bool:
    flavor, image = reading.both("mem_encryption_model")
    if flavor and image and flavor.value != image.value:
        _refuse_pair(reading, "encryption-model-conflict", flavor, image)
        return False
    return True


def _refuse_pair(reading: Reading, kind: FaultKind, flavor: Property, image: Property) -> None:
    reading.refuse(
        kind,
        flavor,
        image,
        found=f"{flavor} and {image} do not agree.",
        change=f"Take {image.name} off the image, or set both to the same.",
    )


def _check_image(reading: Reading, asked: Property, model: _Model) -> None:
    machine = reading.image("machine_type")
    if machine is not None and "q35" not in (machine.value or ""):
        _refuse_image(reading, "encryption-machine", (asked, machine), "a q35 machine type", "q35")
    firmware = reading.image("firmware_type") or _missing("firmware_type")
    if firmware.value != "uefi":
        _refuse_image(reading, "encryption-firmware", (asked, firmware), "UEFI firmware", "uefi")
    if model.stateless:
        stateless = reading.image("firmware_stateless")
        if reading.truth(stateless, "encryption-stateless") in {None, False}:
            said = stateless or _missing("firmware_stateless")
            _refuse_image(reading, "encryption-stateless", (asked, said), "stateless firmware", "true")
    if model.no_video:
        video = reading.image("video_model") or _missing("video_model")
        if video.value != "none":
            _refuse_image(reading, "encryption-video", (asked, video), "a guest without video", "none")


def _missing(name: str) -> Property:
    return Property(name=f"hw_{name}", value=None, where="image")


def _refuse_image(reading: Reading, kind: FaultKind, pair: tuple[Property, Property], needs: str, word: str) -> None:
    asked, found = pair
    reading.refuse(
        kind,
        asked,
        found,
        found=f"This kind of encryption ({asked}) needs {needs}, but there is {found}.",
        change=f"Set {found.name} of the image to {word}, or take {asked.name} off the {asked.where}.",
    )
