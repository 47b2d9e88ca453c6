"""YAML with keys in their own order and names in their own letters, which cliff's formatter does not keep."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import yaml
from cliff.formatters.yaml_format import YAMLFormatter


class YamlFormatter(YAMLFormatter):
    """cliff's, with one document for one thing."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        _parsed_args: argparse.Namespace,
    ) -> None:
        """A list of mappings."""
        _dump([dict(zip(column_names, item, strict=True)) for item in data], stdout)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, _parsed_args: argparse.Namespace
    ) -> None:
        """One mapping."""
        _dump(dict(zip(column_names, data, strict=True)), stdout)


def _dump(value: object, stdout: TextIO) -> None:
    yaml.safe_dump(value, stdout, default_flow_style=False, sort_keys=False, allow_unicode=True)
