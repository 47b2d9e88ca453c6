"""Write the parts of docs/ledger.md that are made of the claims' table:

    python -m tests.gates.ledger_doc docs/ledger.md

tests/unit/test_claim_diagram.py holds what is kept against the table.
"""

import sys
from pathlib import Path

from agent.core.claim.diagram import filled


def main(files: list[str]) -> int:
    if len(files) != 1 or not Path(files[0]).is_file():
        sys.stderr.write(__doc__ or "")
        return 2
    document = Path(files[0])
    document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
