"""What a command says, in the format that was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

from cliff.formatters.base import ListFormatter, SingleFormatter

from agent.cli import exits
from agent.core.words import plain
from agent.render.words import NOTHING

TEXT = "text"
FORMATS = (TEXT, "table", "json", "yaml", "value")
LIST_FORMATS = (*FORMATS, "csv")
DATA_FORMATS = ("json", "yaml")


class Answer(NamedTuple):
    """data: plain dicts and lists, for json and yaml. columns, rows: the same flat, for table, value and csv.

    text: for people, made only when asked for. single: about one thing; `columns` names its facts, `rows` is one row.
    others: keys of json and yaml that another answer to the same question has; they may be asked for.
    """

    data: Any
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    text: Callable[[], str]
    code: int = exits.OK
    single: bool = False
    others: Mapping[str, object] = MappingProxyType({})


class Sheet(NamedTuple):
    """What cliff's formatters take. single: one row, whose values are shown one below the other."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    single: bool


def add_options(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """-f and what refines it; the names are cliff's."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "-f",
        "--format",
        dest="formatter",
        metavar="FORM",
        choices=formats,
        default=TEXT,
        help=f"one of {', '.join(formats)}; default {TEXT}, for people",
    )
    group.add_argument(
        "-c", "--column", dest="columns", metavar="COLUMN", action="append", default=[],
        help="only this column (text apart), or key of json and yaml; repeat for more",
    )  # fmt: skip
    group.add_argument("--noindent", action="store_true", help="json on one line")
    group.add_argument("--max-width", type=int, default=0, metavar="N", help="widest table (default: the terminal's)")
    parser.set_defaults(fit_width=False, print_empty=True, quote_mode="nonnumeric")


def write(answer: Answer, form: str, stdout: TextIO, options: argparse.Namespace) -> None:
    """Write it. Raises BadArguments for a column that there is none of."""
    if form == TEXT:
        stdout.write(answer.text())
        return
    if form in DATA_FORMATS:
        sheet = _data_sheet(answer.data, options.columns, answer.others)
    else:
        # blanks part the columns of "value": an empty one, or a list with blanks, would shift those behind it
        of_value = form == "value"
        sheet = _cell_sheet(answer, options.columns, NOTHING if of_value else "", "" if of_value else " ")
    formatter = _formatter(form)
    if sheet.single and isinstance(formatter, SingleFormatter):
        formatter.emit_one(sheet.columns, sheet.rows[0], stdout, options)
    elif isinstance(formatter, ListFormatter):
        formatter.emit_list(sheet.columns, sheet.rows, stdout, options)


def cell(value: object, nothing: str = "", gap: str = " ") -> str | int:
    """A value in a table: numbers as numbers, true and false in lower case, lists with commas, each before a `gap`."""
    if value is None or value in ("", (), []):
        return nothing
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return plain(f",{gap}".join(f"{name}={cell(part, NOTHING, gap)}" for name, part in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        comma = ";" if isinstance(value[0], Mapping) else ","
        return plain(f"{comma}{gap}".join(str(cell(part, gap=gap)) for part in value))
    return plain(str(value))


def _data_sheet(data: Any, wanted: Sequence[str], others: Mapping[str, object]) -> Sheet:
    """A list's items are all of one kind: the keys of the first are those of all."""
    single = isinstance(data, Mapping)
    items = [_chosen_keys(item, wanted, others) for item in ([data] if single else data)]
    return Sheet(list(items[0]) if items else [], [list(item.values()) for item in items], single)


def _cell_sheet(answer: Answer, wanted: Sequence[str], nothing: str, gap: str) -> Sheet:
    names = _existing(wanted, answer.columns) if wanted else list(answer.columns)
    places = [list(answer.columns).index(name) for name in names]
    rows = [[cell(row[place], nothing, gap) for place in places] for row in answer.rows]
    return Sheet(names, rows, answer.single)


def _formatter(form: str) -> ListFormatter | SingleFormatter:
    """Cliff's formatter of that name, imported only now: prettytable and yaml cost more than most commands."""
    if form == "json":
        from cliff.formatters.json_format import JSONFormatter

        return JSONFormatter()
    if form == "yaml":
        from agent.cli.yaml_output import YamlFormatter

        return YamlFormatter()
    if form == "table":
        from cliff.formatters.table import TableFormatter

        return TableFormatter()
    if form == "csv":
        from cliff.formatters.commaseparated import CSVLister

        return CSVLister()
    from cliff.formatters.value import ValueFormatter

    return ValueFormatter()


def _chosen_keys(data: Mapping[str, Any], wanted: Sequence[str], others: Mapping[str, object]) -> Mapping[str, Any]:
    if not wanted:
        return data
    known = {**others, **data}
    return {name: known[name] for name in _existing(wanted, [*data, *(name for name in others if name not in data)])}


def _existing(wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """The wanted names in the order they were asked for, case aside."""
    by_folded = {name.lower(): name for name in known}
    missing = [name for name in wanted if name.lower() not in by_folded]
    if missing:
        raise exits.BadArguments(f"there is no column {', '.join(missing)}; there are: {', '.join(known)}")
    return [by_folded[name.lower()] for name in wanted]
