"""Write the JSON Schemas that docs/ keeps:

    python -m tests.gates.schemas docs

tests/unit/test_schema.py holds what is kept against the types.
"""

import sys
from pathlib import Path

from agent.formats.schema import schemas, text_of


def main(folders: list[str]) -> int:
    if len(folders) != 1 or not Path(folders[0]).is_dir():
        sys.stderr.write(__doc__ or "")
        return 2
    for name, schema in schemas().items():
        Path(folders[0], name).write_text(text_of(schema), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
