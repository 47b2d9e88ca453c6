"""Write the OpenAPI document of the local API that docs/ keeps:

    python -m tests.gates.openapi docs

tests/unit/test_openapi.py holds what is kept against the table of what is served.
"""

import sys
from pathlib import Path
from typing import Any

from agent.formats.openapi import openapi_document, text_of
from agent.handlers import PROBES, STATUS_OF, TABLE

NAME = "openapi.json"


def document() -> dict[str, Any]:
    """As it must be now."""
    return openapi_document(TABLE.routes, PROBES, STATUS_OF)


def main(folders: list[str]) -> int:
    if len(folders) != 1 or not Path(folders[0]).is_dir():
        sys.stderr.write(__doc__ or "")
        return 2
    Path(folders[0], NAME).write_text(text_of(document()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
