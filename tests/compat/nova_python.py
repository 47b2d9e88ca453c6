"""nova 34 in an environment of its own, made once below .state/ of this checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).with_name("nova34-constraints.txt")
RELEASE = "nova==34.0.0"
ROOT = Path(__file__).parents[2]
STATE = ROOT / ".state"


def nova_python() -> Path:
    """The Python that has nova; installs it at the first call, which takes a minute or two."""
    want = hashlib.sha256(f"{sys.version}\n{CONSTRAINTS.read_text()}".encode()).hexdigest()
    folder = STATE / "nova34"
    python, stamp = folder / "bin/python", folder / "stamp"
    STATE.mkdir(exist_ok=True)
    with (STATE / "nova34.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != want:
            sys.stderr.write(f"installing {RELEASE} to compare with (once; a minute or two)\n")
            run = [sys.executable, "-m", "venv", "--clear", str(folder)]
            subprocess.run(run, check=True)
            _install(python)
            stamp.write_text(want)
    return python


def _install(python: Path) -> None:
    # our own constraints are not nova's, nor are pip's warnings about itself ours
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PIP_CONSTRAINT", "PYTHONWARNINGS"}
    }
    words = ["install", "-qq", "--disable-pip-version-check", "-c", str(CONSTRAINTS), RELEASE]
    subprocess.run([str(python), "-m", "pip", *words], check=True, env=environment)
