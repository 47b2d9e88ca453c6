"""PCI functions, and the network interfaces, vDPA and mediated devices that belong to them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping

import msgspec

from agent.adapters.sysfs.files import Files
from agent.adapters.sysfs.vpd import serial_number
from agent.core.cpuset import CpuSet
from agent.core.pci import DeviceType, MdevType, MediatedDevice, NetInterface, PciAddress, PciDevice
from agent.core.topology import HostCell
from agent.core.words import plural

PCI = "sys/bus/pci/devices"
MDEV = "sys/bus/mdev/devices"
VDPA = "sys/bus/vdpa/devices"
NET = "sys/class/net"

_ID_WIDTHS = {"vendor": 4, "device": 4, "class": 6}

_GROUP = re.compile(r"\d{1,9}", re.ASCII)
_VDPA = re.compile(r"vdpa\d+")
_VIRTUAL_FUNCTION = re.compile(r"virtfn\d+")
_UPLINK = re.compile(r"p\d+(s\d+)?")
_SERIAL_CLASSES = frozenset({"02", "12"})
"""Network controllers and processing accelerators: the cards that nova asks a serial of."""


def read_pci(files: Files, cells: Iterable[HostCell]) -> tuple[PciDevice, ...]:
    """Every PCI function, by address. A function that goes away while it is read is left out, with a problem."""
    cpus_by_cell = {cell.id: cell.cpus for cell in cells}
    found: dict[PciAddress, PciDevice] = {}
    names = files.names(PCI)
    files.require(PCI)
    for name in sorted(names):
        try:
            address = PciAddress.parse(name)
        except ValueError:
            files.problem(f"{PCI}/{name}", "is no PCI address, so this device is left out", name=name)
            continue
        device = _device(files, address, f"{PCI}/{name}", cpus_by_cell)
        if device is not None:
            found[address] = device
    return tuple(_with_parent(found[address], found) for address in sorted(found))


def read_mdevs(files: Files) -> tuple[MediatedDevice, ...]:
    """Mediated devices that exist now, by uuid. Source: bus/mdev/devices."""
    names = files.names(MDEV)
    files.require(MDEV)
    return tuple(
        MediatedDevice(
            uuid=uuid,
            type=files.link(f"{MDEV}/{uuid}/mdev_type"),
            parent=_address_or_none(files.real_path(f"{MDEV}/{uuid}").rpartition("/")[0].rpartition("/")[2]),
        )
        for uuid in sorted(names)
    )


def _device(files: Files, address: PciAddress, folder: str, cells: Mapping[int, CpuSet]) -> PciDevice | None:
    names = files.names(folder)
    ids = _ids(files, folder, names)
    if ids is None:
        return None
    vendor_id, product_id, class_code = ids
    vdpa = _vdpa(files, folder, names)
    parent = _address_or_none(files.link(f"{folder}/physfn")) if "physfn" in names else None
    total, functions = _sriov(files, folder, names)
    return PciDevice(
        address=address,
        vendor_id=vendor_id,
        product_id=product_id,
        class_code=class_code[:4],
        cell=_cell(files, folder, names, cells),
        type=_type(is_virtual="physfn" in names, is_physical=total is not None, has_vdpa=bool(vdpa)),
        parent=parent,
        driver=files.link(f"{folder}/driver") if "driver" in names else None,
        iommu_group=_iommu_group(files, folder) if "iommu_group" in names else None,
        sriov_totalvfs=total,
        sriov_numvfs=functions,
        netdevs=_netdevs(files, folder, names),
        vdpa=vdpa,
        mdev_types=_mdev_types(files, folder) if "mdev_supported_types" in names else (),
        serial=_serial(files, folder) if "vpd" in names and class_code[:2] in _SERIAL_CLASSES else None,
    )


def _ids(files: Files, folder: str, names: frozenset[str]) -> tuple[str, str, str] | None:
    """Vendor, product (4 digits each) and class (6 digits), in lower case without 0x. None, with a problem, if not all
    are known."""
    texts = {name: files.text(f"{folder}/{name}") for name in _ID_WIDTHS}
    told = [_digits(texts[name], width) for name, width in _ID_WIDTHS.items()]
    if None in told and "uevent" in names:
        said = dict(line.partition("=")[::2] for line in (files.text(f"{folder}/uevent") or "").splitlines())
        vendor, _, product = said.get("PCI_ID", "").partition(":")
        spare = (_digits(vendor, 4), _digits(product, 4), _digits(said.get("PCI_CLASS", "").zfill(6), 6))
        told = [first or second for first, second in zip(told, spare, strict=True)]
    vendor_id, product_id, class_code = told
    if vendor_id and product_id and class_code:
        return vendor_id, product_id, class_code
    # a file that is refused or holds rubbish stays so; one that is missing belongs to a device that comes or goes
    is_leaving = any(text is None and not files.failed(f"{folder}/{name}") for name, text in texts.items())
    add = files.transient_problem if is_leaving else files.problem
    add(folder, "has no vendor, product or class now, so this device is left out")
    return None


def _digits(text: str | None, width: int) -> str | None:
    digits = (text or "").strip().lower().removeprefix("0x")
    return digits if re.fullmatch(rf"[0-9a-f]{{{width}}}", digits) else None


def _cell(files: Files, folder: str, names: frozenset[str], cells: Mapping[int, CpuSet]) -> int | None:
    """The number stands where the list of near CPUs says otherwise: that list is made from the number."""
    number = files.number(f"{folder}/numa_node") if "numa_node" in names else None
    if number is None or number < 0:
        return None
    near = files.cpulist(f"{folder}/local_cpulist") if "local_cpulist" in names else None
    if number not in cells:
        what = "names a cell that this host does not have; the device is shown without a cell"
        files.problem(f"{folder}/numa_node", what, numa_node=number, cells=",".join(map(str, sorted(cells))))
        return None
    if near is not None and cells[number] and near & _union(cells) != cells[number]:
        said = (("numa_node", f"{number} ({plural(cells[number])})"), ("local_cpulist", near))
        files.contradiction(f"{folder}/numa_node", "contradicts local_cpulist; the number is taken", said)
    return number


def _union(cells: Mapping[int, CpuSet]) -> CpuSet:
    return CpuSet.from_mask(functools.reduce(lambda mask, cpus: mask | cpus.mask, cells.values(), 0))


def _vdpa(files: Files, folder: str, names: frozenset[str]) -> tuple[str, ...]:
    """Its vDPA devices, each followed by its character device, by whose name a guest's definition calls it."""
    found: list[str] = []
    for name in sorted(name for name in names if _VDPA.fullmatch(name)):
        found += [name, *sorted(child for child in files.names(f"{folder}/{name}") if child.startswith("vhost-vdpa-"))]
    return tuple(found)


def _sriov(files: Files, folder: str, names: frozenset[str]) -> tuple[int | None, int | None]:
    """Most and present virtual functions of a physical one, else None twice. Kernels before 3.8 have the links only."""
    links = sum(1 for name in names if _VIRTUAL_FUNCTION.fullmatch(name))
    total = files.number(f"{folder}/sriov_totalvfs") if "sriov_totalvfs" in names else None
    if not total and not links:
        return None, None
    functions = files.number(f"{folder}/sriov_numvfs") if "sriov_numvfs" in names else None
    return total or links, links if functions is None else functions


def _type(*, is_virtual: bool, is_physical: bool, has_vdpa: bool) -> DeviceType:
    if is_virtual:
        return "vdpa" if has_vdpa else "type-VF"
    return "type-PF" if is_physical else "type-PCI"


def _iommu_group(files: Files, folder: str) -> int | None:
    name = files.link(f"{folder}/iommu_group") or ""
    return int(name) if _GROUP.fullmatch(name) else None


def _netdevs(files: Files, folder: str, names: frozenset[str]) -> tuple[NetInterface, ...]:
    """Interfaces of a function, the uplink first. A virtio card has them one folder further down."""
    folders = [f"{folder}/net"] if "net" in names else []
    folders += [f"{folder}/{name}/net" for name in sorted(names) if name.startswith("virtio")]
    paths = [f"{net}/{name}" for net in folders for name in files.names(net)]
    ordered = sorted(paths, key=lambda path: (not _is_uplink(files, path) if len(paths) > 1 else False, path))
    return tuple(NetInterface(name=p.rpartition("/")[2], mac=files.text(f"{p}/address") or None) for p in ordered)


def _is_uplink(files: Files, path: str) -> bool:
    """In switchdev mode the folder also holds a representor for each virtual function (port name "pf0vf1")."""
    port = files.text_if_easy(f"{path}/phys_port_name")
    return not port or _UPLINK.fullmatch(port) is not None


def _mdev_types(files: Files, folder: str) -> tuple[MdevType, ...]:
    offers = f"{folder}/mdev_supported_types"
    return tuple(
        MdevType(
            id=kind,
            name=files.text(f"{offers}/{kind}/name") or None,
            device_api=files.text(f"{offers}/{kind}/device_api") or None,
            available=files.number(f"{offers}/{kind}/available_instances") or 0,
        )
        for kind in sorted(files.names(offers))
    )


def _serial(files: Files, folder: str) -> str | None:
    """None where it may not be read (root only) or the card does not answer."""
    try:
        descriptor = files.open(f"{folder}/vpd")
    except OSError:
        return None
    try:
        return serial_number(descriptor)
    except OSError:
        return None
    except ValueError as error:
        files.problem(f"{folder}/vpd", "is no vital product data, so the serial number is not known", why=error)
        return None
    finally:
        os.close(descriptor)


def _address_or_none(name: str | None) -> PciAddress | None:
    try:
        return PciAddress.parse(name or "")
    except ValueError:
        return None


def _with_parent(device: PciDevice, found: Mapping[PciAddress, PciDevice]) -> PciDevice:
    parent = found.get(device.parent) if device.parent is not None else None
    if parent is None or not parent.netdevs:
        return device
    return msgspec.structs.replace(device, parent_ifname=parent.netdevs[0].name)
