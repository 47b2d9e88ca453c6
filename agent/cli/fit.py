"""agentctl fit."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping

from agent.cli import exits, files, guest_options, output
from agent.cli.command import HostCommand
from agent.cli.exits import BadArguments
from agent.cli.fit_rows import in_short, rows
from agent.cli.guest_options import FaultyRequest, Once
from agent.core.dry_run import CountAnswer, FitAnswer, try_count, try_fit
from agent.core.fit.host import host_facts
from agent.core.flavor import Faults
from agent.core.instance import RequestSpec
from agent.core.pci import PciAddress
from agent.core.reasons import ClaimForbidden, InMaintenance
from agent.core.relax.values import Relaxations
from agent.core.report import report
from agent.core.snapshot import Snapshot
from agent.core.topology import HostTopology
from agent.core.words import count
from agent.errors import FaultyInput
from agent.formats import snapshot_file, wire
from agent.formats.envelope import Refusal, contradictory
from agent.formats.fit_answer import count_document, digested, empty_fields, fit_document
from agent.render.fit_text import placement_text, refusal_text
from agent.render.table import wrap

MOST_GUESTS = 10_000
LONGEST_SNAPSHOT = 1 << 28
COLUMNS = ("fits", "part", "cell", "what")
MOST_SHOWN = 20
"""Guests of a count whose places are told to people."""


Found = FitAnswer | CountAnswer


class Fit(HostCommand):
    """Say whether a guest would fit: where each of its parts would go, or every reason why not. Promises nothing."""

    formats = output.LIST_FORMATS
    epilog_text = (
        "  agentctl fit --vcpus 4 --memory-mb 4096 --extra-spec hw:cpu_policy=dedicated\n"
        "  agentctl fit --request FILE.json --snapshot HOST.json -f json\n"
        "docs/fit.md has the forms of both files.\n\n"
        f"{exits.TABLE}"
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the guest and where else to look."""
        parser = super().get_parser(prog_name)
        guest = guest_options.add_options(parser)
        guest.add_argument(
            "--count", type=int, metavar="N", action=Once, help="how many such guests fit at once, at most N"
        )
        where = parser.add_argument_group("a host in a file")
        where.add_argument(
            "--snapshot", metavar="FILE", action=Once, help="as agentctl snapshot writes, or the short form"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Ask, write the answer, return its exit code; json and yaml have the refusal of a request with faults, too."""
        try:
            return self._answered(parsed_args)
        except FaultyRequest as error:
            if parsed_args.formatter in output.DATA_FORMATS:
                nothing = dict.fromkeys((*FitAnswer.__struct_fields__, *CountAnswer.__struct_fields__, "count"))
                refusal = output.Answer(wire.to_builtins(error.refusal), (), (), str, others=nothing)
                output.write(refusal, parsed_args.formatter, self.app.stdout, parsed_args)
            raise

    def _answered(self, parsed_args: argparse.Namespace) -> int:
        self._check_places(parsed_args)
        spec = guest_options.spec_of(parsed_args)
        if parsed_args.count is not None and not 1 <= parsed_args.count <= MOST_GUESTS:
            raise BadArguments(f"--count {parsed_args.count}: not between 1 and {MOST_GUESTS}")
        found, topology = self._ask(spec, parsed_args)
        last = found.last if isinstance(found, CountAnswer) else found
        for text in _remarks(last):
            self.app.say(text)
        cells = {} if topology is None else {device.address: device.cell for device in topology.pci}
        answer = _answer(found, lambda: self._text(found, cells))
        output.write(answer, parsed_args.formatter, self.app.stdout, parsed_args)
        return answer.code

    def _ask(self, spec: RequestSpec, options: argparse.Namespace) -> tuple[Found, HostTopology | None]:
        where = self.app.source
        asks_agent = options.snapshot is None and where.should_ask_agent(self.app.say)
        if asks_agent and options.count is None:
            return self._ask_agent(spec, options)
        if options.snapshot is not None:
            snapshot = _read_snapshot(options.snapshot)
        else:
            snapshot = self._checked(where.ask_snapshot() if asks_agent else where.look_snapshot())
        facts = host_facts(snapshot.topology, snapshot.config)
        if options.count is None:
            found: Found | Faults = try_fit(spec, snapshot, facts)
        else:
            found = try_count(spec, snapshot, facts, options.count)
        if isinstance(found, Faults):
            raise FaultyRequest(contradictory(found.faults), options.request)
        return (digested(found, spec) if isinstance(found, FitAnswer) else found), snapshot.topology

    def _ask_agent(self, spec: RequestSpec, options: argparse.Namespace) -> tuple[Found, HostTopology | None]:
        found = self.app.source.ask_fit(spec)
        if isinstance(found, Refusal):
            raise FaultyRequest(found, options.request)
        has_devices = found.placement is not None and bool(found.placement.devices)
        return found, self.app.source.ask_topology() if has_devices else None

    def _checked(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, what could not be seen of it told. Raises HostReadError when it knows no CPU."""
        seen = report(snapshot, now_s=time.monotonic(), interval_s=math.inf)
        self.warn(self.with_host(seen))
        return snapshot

    def _check_places(self, options: argparse.Namespace) -> None:
        """A host in a file is the only one that is looked at. Raises BadArguments."""
        given = self.app.options
        others = {
            "--socket": given.socket,
            "--direct": given.direct,
            "--sysfs-root": given.sysfs_root,
            "--connect": given.connect,
            "--config-file": given.config_file,
        }
        beside = [option for option, value in others.items() if value]
        if options.snapshot is not None and beside:
            raise BadArguments(f"the host is that of --snapshot or that of {', '.join(beside)}, not both")

    def _text(self, found: Found, cells: Mapping[PciAddress, int | None]) -> str:
        if isinstance(found, CountAnswer):
            return self._counted(found)
        if found.placement is not None:
            return placement_text(found.placement, device_cells=cells, width=self.width, paint=self.paint)
        return self._refusal(found, looked_for_help=True)

    def _counted(self, found: CountAnswer) -> str:
        likes = count(found.asked, "such guest")
        if not found.placements:
            return f"There is room for none of {likes}. The first:\n{self._refusal(found.last, looked_for_help=True)}"
        lines = [
            wrap(f"guest {number}: {in_short(placement)}", self.width, first="  ", rest="    ")
            for number, placement in enumerate(found.placements[:MOST_SHOWN], 1)
        ]
        if (more := len(found.placements) - MOST_SHOWN) > 0:
            lines.append(f"  and {more} more, all of which -f json has\n")
        places = "".join(lines)
        if found.fits:
            return f"There is room for {likes}, one beside the other:\n{places}"
        next_one = self._refusal(found.last, looked_for_help=False)
        return f"There is room for {len(found.placements)} of {likes}:\n{places}The next:\n{next_one}"

    def _refusal(self, found: FitAnswer, *, looked_for_help: bool) -> str:
        is_about_room = not any(isinstance(reason, InMaintenance | ClaimForbidden) for reason in found.reasons)
        is_told = looked_for_help and (is_about_room or bool(found.relaxations))
        would_help = Relaxations(found=found.relaxations, untried=found.untried) if is_told else None
        return refusal_text(found.reasons, would_help, width=self.width, paint=self.paint)


def _read_snapshot(name: str) -> Snapshot:
    """Raises HostReadError, and FaultyInput with the name of the file before each fault."""
    text = files.read(name, LONGEST_SNAPSHOT, "--snapshot")
    try:
        return snapshot_file.from_json(text)
    except FaultyInput as error:
        raise FaultyInput(*(f"{files.shown(name)}: {fault}" for fault in error.faults)) from error


def _remarks(answer: FitAnswer) -> Iterator[str]:
    """What has no effect; a property that means nothing and is like one that does has a note of its own."""
    for name in answer.unknown:
        if not any(note.startswith(f"{name} ") for note in answer.notes):
            yield f"{name} of the request means nothing here"
    yield from answer.notes


def _answer(found: Found, text: Callable[[], str]) -> output.Answer:
    data = fit_document(found) if isinstance(found, FitAnswer) else count_document(found)
    lines = [[found.fits, *row] for row in rows(found)]
    code = exits.OK if found.fits else exits.FOUND
    return output.Answer(data, COLUMNS, lines, text, code, others=empty_fields(found))
