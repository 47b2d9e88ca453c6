"""LP#1805891 itself: a whitelisted physical function on cell 0, guest CPUs on cell 1 alone, a guest of one cell."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from agent import conf
from agent.core.cpuset import CpuSet
from agent.core.flavor import Faults, request_of
from agent.core.instance import Flavor, Instance, RequestSpec
from agent.core.pci_request import PciNumaPolicy
from agent.core.reason_text import sentence
from agent.core.reasons import DevicesFar, Reason
from tests.at_work import AtWork, asked
from tests.builders import Host, Node, function, host, uuid_of
from tests.field.claims import Answer, given, only_cell, placed, reasons

PF, VF = "0000:3b:00.0", "0000:3b:02.0"
CARD = (function(PF, "type-PF", numa=0), function(VF, "type-VF", numa=0, pf=PF))
KIND = '"vendor_id": "8086", "product_id": "10fb"'
ALIAS = f'alias = {{"name": "nic", {KIND}, "device_type": "type-PF"%s}}'
AS_TODAY = f"[compute]\ncpu_dedicated_set = 4-7\n[pci]\ndevice_spec = {{{KIND}}}\n{ALIAS}\n"
AS_REPORTED = f"[DEFAULT]\nvcpu_pin_set = 4-7\n[pci]\npassthrough_whitelist = {{{KIND}}}\n{ALIAS}\n"
PINNED = {"hw:cpu_policy": "dedicated"}
FLOATING: dict[str, str] = {}
"""As reported: no CPU policy."""

either_input = pytest.mark.parametrize(("text", "more_specs"), [(AS_TODAY, PINNED), (AS_REPORTED, FLOATING)])


def answer(folder: Path, text: str, more_specs: dict[str, str], policy: PciNumaPolicy | None) -> Answer:
    """To a claim of the flavor of the report, on its host under a nova.conf with this text."""
    (folder / "nova.conf").write_text(text % ("" if policy is None else f', "numa_policy": "{policy}"'))
    (folder / "own.conf").write_text(f"[agent]\nnova_conf = {folder / 'nova.conf'}\n")
    config = conf.load(["--config-file", str(folder / "own.conf")]).host_config
    topology = host({0: Node("0-3", 8192), 1: Node("4-7", 8192)}, pci=CARD).topology
    specs = MappingProxyType({"hw:numa_nodes": "1", "pci_passthrough:alias": "nic:1", **more_specs})
    flavor = Flavor(vcpus=1, memory_mb=1024, extra_specs=specs)
    spec = RequestSpec(instance=Instance(uuid=uuid_of("x")), flavor=flavor)
    made = request_of(spec, config)
    assert not isinstance(made, Faults), made
    with AtWork(folder, Host(topology, config)) as at_work:
        at_work.look()
        return at_work.claims.claim(asked("k1", "x", made.request))


def only_far(found: tuple[Reason, ...]) -> DevicesFar:
    """The one reason that is about the device."""
    (far,) = (reason for reason in found if isinstance(reason, DevicesFar))
    return far


@either_input
def test_preferred_takes_cpus_and_memory_of_one_cell_and_the_device_of_the_other(
    text: str, more_specs: dict[str, str], tmp_path: Path
) -> None:
    found = answer(tmp_path, text, more_specs, "preferred")
    cell = only_cell(found)
    assert cell.host_cell == 1
    assert cell.cpus | cell.shared_cpus <= CpuSet([4, 5, 6, 7])
    assert len(cell.cpus) == (1 if more_specs else 0)
    assert given(found) == [PF]
    assert placed(found).emulator_cpus == cell.cpus | cell.shared_cpus


@either_input
@pytest.mark.parametrize("policy", ["required", "legacy", "socket", None])
def test_every_other_policy_refuses_and_says_so(
    text: str, more_specs: dict[str, str], policy: PciNumaPolicy | None, tmp_path: Path
) -> None:
    far = only_far(reasons(answer(tmp_path, text, more_specs, policy)))
    assert (far.request, far.policy, far.asked) == ("alias:nic", policy or "legacy", 1)
    assert (far.near, str(far.cells), dict(far.by_cell), far.elsewhere) == (0, "1", {0: 1}, 0)
    said = sentence(far)
    assert (policy or "legacy") in said
    assert "cell 0" in said
