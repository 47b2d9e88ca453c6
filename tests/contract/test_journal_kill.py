"""Killed with signal 9 in the middle of writing: what was answered is there, and no change is half there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from agent.adapters.journal import Store, read_steps

CHECKOUT = Path(__file__).parents[2]
WRITER = """
import os, sys, threading
from pathlib import Path
from agent.adapters.journal import Journal, Store
from agent.core.claim.values import Record
from tests.builders_journal import claim_of, gone, record_of, step_of
folder, first = Path(sys.argv[1]), int(sys.argv[2])
store = Store.open(folder)
store.begin("b")
journal = Journal(store)
out = threading.Lock()
def tell(number, outcome):
    assert outcome is None, outcome
    with out:
        os.write(1, b"%d\\n" % number)
def work(number):
    while True:  # each change: one claim more, the one before less, and a step of that number
        done = threading.Event()
        records = (record_of(claim_of(number)), gone(claim_of(number - 4)))
        def on_done(outcome, number=number, done=done):
            tell(number, outcome)
            done.set()
        journal.write(records, (step_of(number),), is_taker=True, on_done=on_done)
        done.wait()
        number += 4
for thread in [threading.Thread(target=work, args=(first + n,)) for n in range(4)]:
    thread.start()
"""
"""Four threads, each of which replaces its last claim by the next; the number is told once that is stored."""


def test_of_four_writers_all_that_was_answered_is_stored_and_no_change_is_half_stored(tmp_path: Path) -> None:
    first = 4
    for run in range(1, 6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(first)],
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
            text=True,
        )
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(5 + 11 * run)]
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()
        store = Store.open(tmp_path)
        records, sequence, damaged = store.load()
        store.close()
        steps = {step.sequence for step in read_steps(tmp_path) if step.sequence >= first}
        assert damaged is None
        assert steps >= set(told), "what was answered is stored"
        assert len(steps - set(told)) <= 4, "of each thread one change at most was stored and not answered yet"
        last = {max(number for number in steps if number % 4 == lane) for lane in range(4)}
        of_this_run = {record.key for record in records if int(record.key.partition("-")[2]) >= first}
        assert of_this_run == {f"claim-{number}" for number in last}, "with each claim the one before it went"
        assert sequence == max(steps)
        first = 4 * (max(steps) // 4 + 1)
