"""A guest on the command line: a request in a file, or the words of its flavor, image, ports and group."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from agent.cli import files
from agent.cli.exits import BadArguments
from agent.core.instance import RequestSpec
from agent.errors import FaultyInput, HostReadError
from agent.formats import request
from agent.formats.envelope import Refusal, invalid


class FaultyRequest(BadArguments):
    """The request has to change; the refusal is what the API would answer."""

    def __init__(self, refusal: Refusal, file: str | None) -> None:
        said = refusal.reasons or (refusal.message,)
        name = "" if file is None else f"{files.shown(file)}: "
        super().__init__("\n".join(f"{name}{sentence}" for sentence in said))
        self.refusal = refusal


class Once(argparse.Action):
    """An option whose second value would replace the first silently."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Keep the value."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice")
        setattr(namespace, self.dest, values)


def add_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options that describe a guest; the group, for those that a command adds."""
    guest = parser.add_argument_group("the guest")
    guest.add_argument("--request", metavar="FILE", action=Once, help="a request as JSON; - is standard input")
    guest.add_argument("--vcpus", type=int, metavar="N", action=Once, help="the flavor's, instead of a file")
    guest.add_argument("--memory-mb", type=int, metavar="MIB", action=Once, help="the flavor's")
    guest.add_argument(
        "--extra-spec", metavar="KEY=VALUE", action="append", default=[], help="of the flavor; repeat for more"
    )
    guest.add_argument(
        "--image-property", metavar="KEY=VALUE", action="append", default=[], help="of the image; repeat for more"
    )
    guest.add_argument("--port", metavar="JSON", action="append", default=[], help='as {"vnic_type": "direct"}')
    guest.add_argument("--group", metavar="JSON", action=Once, help='as {"id": "g", "policy": "anti-affinity"}')
    return guest


def spec_of(options: argparse.Namespace) -> RequestSpec:
    """The guest that the options describe. Raises BadArguments."""
    words = (options.extra_spec, options.image_property, options.port)
    has_words = any((options.vcpus is not None, options.memory_mb is not None, *words, options.group is not None))
    if options.request is not None and has_words:
        raise BadArguments("a guest is described by --request or by the other options, not by both")
    if options.request is None and (options.vcpus is None or options.memory_mb is None):
        raise BadArguments("describe the guest: --request FILE, or --vcpus and --memory-mb")
    try:
        if options.request is not None:
            return request.from_json(files.read(options.request, request.LONGEST_REQUEST, "--request"))
        return request.from_words(
            vcpus=options.vcpus,
            memory_mb=options.memory_mb,
            extra_specs=options.extra_spec,
            properties=options.image_property,
            ports=options.port,
            group=options.group,
        )
    except FaultyInput as error:
        raise FaultyRequest(invalid(error.faults), options.request) from error
    except HostReadError as error:
        raise BadArguments(str(error)) from error
