"""etc/compute-agent.conf.sample is what oslo-config-generator makes of the options."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
SAMPLE = CHECKOUT / "etc" / "compute-agent.conf.sample"
GENERATOR = "from oslo_config.generator import main; main()"


def _declared_entry_point() -> str:
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    return setup["options.entry_points"]["oslo.config.opts"].strip()


def _generate(folder: Path, output: Path) -> None:
    # a distribution of its own, so that this needs no installed package and tries what setup.cfg declares
    info = folder / "sample_of_compute_agent-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample-of-compute-agent\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[oslo.config.opts]\n{_declared_entry_point()}\n")
    subprocess.run(
        [
            sys.executable,
            "-c",
            GENERATOR,
            "--namespace",
            "compute_agent",
            "--wrap-width",
            "100",
            "--output-file",
            output,
        ],
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{CHECKOUT}", "HOME": str(folder)},
    )


def test_the_committed_sample_is_current(tmp_path: Path) -> None:
    made = tmp_path / "made.conf"
    _generate(tmp_path, made)
    assert SAMPLE.read_text() == made.read_text(), (
        "make it anew: oslo-config-generator --namespace compute_agent --wrap-width 100 "
        "--output-file etc/compute-agent.conf.sample"
    )


def test_every_line_of_the_sample_is_a_comment_or_a_group() -> None:
    lines = [line for line in SAMPLE.read_text().splitlines() if line and not line.startswith("#")]
    assert lines == [
        f"[{group}]"
        for group in ("DEFAULT", "agent", "claims", "compute", "conflicts", "http", "libvirt", "pci", "tracker")
    ]
