"""YAML with keys in their own order and names in their own letters, which cliff's formatter does not keep.

What could steer a terminal is written as YAML's own escapes, so that a reader gets it as it was told.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import yaml
from cliff.formatters.yaml_format import YAMLFormatter

from agent.core.words import plain_lines


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


class _Dumper(yaml.SafeDumper):
    """Quotes what has to be escaped."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """In double quotes if not all is printable: only there YAML knows escapes."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Dumper.add_representer(str, _Dumper.represent_str)


def _dump(value: object, stdout: TextIO) -> None:
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True)
    # PyYAML takes signs that turn the reading direction for letters; our escapes are those of YAML's double quotes
    stdout.write(plain_lines(text))
