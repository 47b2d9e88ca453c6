"""What a command says of itself, in lines that a terminal has room for."""

from __future__ import annotations

import argparse
import itertools
import re
import textwrap

_HEAD = re.compile(r"\s+(?:\S+\s{2,})?")
"""Of a line of a list: its indent, and the first column where it has two."""


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Lines that begin at the margin are paragraphs. Indented ones stand for themselves: where one is too long, what
    follows goes below its second column. Commands stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width += 2  # argparse leaves two columns unused
        lines: list[str] = []
        for is_paragraph, group in itertools.groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            if is_paragraph:
                lines += textwrap.wrap(" ".join(group), width, break_on_hyphens=False)
            else:
                lines += [piece for line in group for piece in _in_pieces(line, width)]
        return "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)


def _in_pieces(line: str, width: int) -> list[str]:
    if len(line) <= width or line.lstrip().startswith("agentctl "):
        return [line]
    head = _HEAD.match(line)
    rest = " " * (head.end() if head else 0)
    return textwrap.wrap(line, width, subsequent_indent=rest, break_on_hyphens=False, drop_whitespace=True)
