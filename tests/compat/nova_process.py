"""A process with nova that answers each line of JSON with one."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.compat.nova_python import ROOT, nova_python

Ask = Callable[[object], Any]


@contextmanager
def nova_process(module: str) -> Iterator[Ask]:
    """Run this module of the repository with nova's Python. Each call sends one value and gives the answer; raises
    RuntimeError with what the process said on its standard error when it ends."""
    with tempfile.TemporaryFile("w+") as said:
        command = [str(nova_python()), "-W", "ignore", "-m", module]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, cwd=ROOT, env=environment
        ) as nova:
            given, told = nova.stdin, nova.stdout
            assert given is not None
            assert told is not None

            def ask(value: object) -> Any:
                given.write(f"{json.dumps(value)}\n")
                given.flush()
                answer = told.readline()
                if not answer:
                    said.seek(0)
                    raise RuntimeError(f"nova's process ended: {said.read()}")
                return json.loads(answer)

            try:
                yield ask
            finally:
                nova.kill()
