# SPDX-License-Identifier: MIT
"""Recordings on disk, and commands run on them in this process."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof.errors import ExitCode
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import (
    ENVIRONMENT_FILE,
    FORMAT_VERSION,
    SAMPLES_FILE,
    SUFFIX,
)
from vmmprof.reference import table

from ..analysis.synthetic import samples
from .recordings import environment, frame


def save(path: Path, recording: Recording) -> Path:
    """Write a recording as a folder; its path without the suffix."""
    folder = path.with_name(path.name + SUFFIX)
    folder.mkdir()
    facts = {"format_version": FORMAT_VERSION} | recording.environment
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(facts), encoding="utf-8")
    pq.write_table(pa.Table.from_pandas(recording.samples), folder / SAMPLES_FILE)
    return path


def run(command: str, *words: str) -> ExitCode:
    """One command line, as the program runs it; errors come out as exceptions."""
    parser = argparse.ArgumentParser()
    module = importlib.import_module(f"vmmprof.cli.{command}")
    module.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args([command, *words])
    return ExitCode(arguments.handler(arguments))


def five_arms(folder: Path) -> list[str]:
    """Noise-free recordings of the paper's table 7 and the words that name its arms."""
    paper = table("ld_table07_create_patched")
    sizes = np.array(paper.numbers("size_mib"))
    facts = environment(driver="model:b200", is_model=True, headline="create")
    columns = {"on": "ld_on_us", "b": "b_only_us", "a": "a_only_us", "ab": "a_plus_b_us"}
    words = []
    for arm, column in columns.items():
        times = {
            name: np.tile(np.array(paper.numbers(of)), (6, 1))
            for name, of in (("device", "ld_off_us"), ("domain:0", column))
        }
        rows = frame([samples(times, sizes, attempt=1)])
        rows["create_ns"] = rows["total_ns"]
        path = save(folder / arm, Recording(folder / arm, rows, facts, VMM_CYCLE))
        if arm == "on":
            words.append(f"off={path}:device")
        words.append(f"{arm}={path}:domain:0")
    return words
