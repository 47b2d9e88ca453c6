"""Size gate: no function longer than 50 lines, no module longer than 500.

    python tests/gates/sizes.py FOLDER...

prints one line per fault and exits with 1 if there is any. A function counts from its `def` (decorators left out) to
its last line, docstring included: what matters is how far a reader has to scroll.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES = 50
MODULE_LINES = 500


def faults(path: Path) -> Iterator[str]:
    """One sentence per function or module of this file that is too long, in the order of the file."""
    source = path.read_text(encoding="utf-8")
    lines = len(source.splitlines())
    if lines > MODULE_LINES:
        yield f"{path}:1: module has {lines} lines, at most {MODULE_LINES} are allowed. Split it by what it is about."
    for node in ast.walk(ast.parse(source, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: function {node.name} has {length} lines, "
                    f"at most {FUNCTION_LINES} are allowed. Give its steps names of their own."
                )


def main(folders: list[str]) -> int:
    if not folders:
        sys.stderr.write(__doc__ or "")
        return 2
    missing = [folder for folder in folders if not Path(folder).is_dir()]
    if missing:
        # a gate that looks at nothing would pass for ever
        sys.stderr.write(f"sizes.py: no such folder: {', '.join(missing)}. Run it at the top of the checkout.\n")
        return 2
    found = [fault for folder in folders for path in sorted(Path(folder).rglob("*.py")) for fault in faults(path)]
    sys.stdout.writelines(f"{fault}\n" for fault in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
