#!/usr/bin/env python3
"""Runs the programs of docs/your_program.md, built with the installed package, on 1, 2 and 3 ranks: the losses must be the same.

    your_program.py BUILD REIGEN LIBREIGEN_C SOURCE SCRATCH
"""
import json
import re
import subprocess
import sys
from pathlib import Path

BUILD, REIGEN, LIBRARY, SOURCE, SCRATCH = (Path(word) for word in sys.argv[1:6])
RANKS = (1, 2, 3)


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def by_launcher(ranks, *words):
    return run(REIGEN, "run", "-n", ranks, "--prefix", "none", *words)


def losses_in(text):
    return [float(number) for number in re.findall(r" (?:loss|mean) ([0-9.]+)$", text, re.MULTILINE)]


def losses_of_run(directory):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def require_equal(name, losses):
    first = losses[0]
    if len(first) < 6 or not first[-1] < first[0]:
        sys.exit(f"{name} learns nothing: {first}")
    for ranks, others in zip(RANKS, losses):
        if len(others) != len(first) or any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(first, others)):
            sys.exit(f"{name}: other losses on {ranks} ranks\n{first}\n{others}")


def rows():
    for i in range(126):
        x, y, z = (i * 7 % 21) / 21, (i * 5 % 18) / 18, (i * 11 % 14) / 14
        yield f"{x:.4f},{y:.4f},{z:.4f},{x * y - z:.6f}"


(SCRATCH / "table.csv").write_text("\n".join(rows()) + "\n")
loops = [by_launcher(n, BUILD / "own_loop", SCRATCH / "table.csv", SCRATCH / f"own_loop_{n}") for n in RANKS]
require_equal("own_loop", [losses_in(text) for text in loops])
if "going on after step 24" not in by_launcher(2, BUILD / "own_loop", SCRATCH / "table.csv", SCRATCH / "own_loop_3"):
    sys.exit("own_loop does not go on from its checkpoint")

for name in ("own_task", "two_inputs"):
    texts = []
    for n in RANKS:
        texts.append(run(BUILD / name, "-n", n, "--run.dir", SCRATCH / f"{name}_{n}"))
    require_equal(name, [losses_of_run(SCRATCH / f"{name}_{n}") for n in RANKS])
    if ("accuracy" in texts[0]) != (name == "two_inputs"):
        sys.exit(f"{name} has an accuracy, or none, against what it knows:\n{texts[0]}")
if "--loss.quantile" not in run(BUILD / "own_task", "--help"):
    sys.exit("own_task --help does not list its own options")

for name in ("horovod_port", "own_transformer"):
    require_equal(name, [losses_in(by_launcher(n, BUILD / name)) for n in RANKS])

# On one rank, on two stages, and on two ranks that divide layers in each of two stages.
meshes = ((1, "1", "1"), (2, "1", "2"), (4, "2", "2"))
require_equal("own_pipeline", [losses_in(by_launcher(n, BUILD / "own_pipeline", tp, pp)) for n, tp, pp in meshes])

for n in RANKS:
    mean = f"{n} ranks: the last mean is {(n - 1) / 2 + 5:g}\n"
    for words in ((BUILD / "collectives",), (sys.executable, SOURCE / "collectives.py", LIBRARY)):
        printed = by_launcher(n, *words)
        if printed != mean:
            sys.exit(f"{words} printed {printed!r}, expected {mean!r}")
print("the seven programs of docs/your_program.md give the same on 1, 2 and 3 ranks")
