"""Starts ranks of build/tests/comm_trial for scripts/check/grid, scripts/check/soak and scripts/check/faults."""
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def add_options(parser):
    parser.add_argument("--build", default=ROOT / "build", type=Path, help="folder of the build (scripts/build all makes it)")
    parser.add_argument("--backend", default="shared_memory")
    parser.add_argument("--machines", default=0, type=int, help="ranks play so many machines: for the backend hierarchical")
    parser.add_argument("--network", default="tcp", help="between machines")
    parser.add_argument("--seed", default=1, type=int)


def program(options):
    path = options.build / "tests/comm_trial"
    if not path.exists():
        sys.exit(f"{path} is missing: run scripts/build all first")
    return path


def numbers(text):
    return [int(word) for word in text.split(",")]


class Store:
    """A store in its own process, which ends when its standard input ends. With `space`, it runs in that namespace."""

    def __init__(self, path, space=None):
        self.host = space.address if space else "127.0.0.1"
        self.process = subprocess.Popen([path, "serve", "--host", self.host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=space.enter if space else None)
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()


def words_of(path, command, options, **named):
    words = [str(path), command, "--backend", options.backend, "--machines", str(options.machines), "--network", options.network]
    for name, value in named.items():
        words += [f"--{name}"] + ([] if value is True else [str(value)])
    return words


def start(path, command, options, **named):
    """Starts one process: a rank, or all ranks as threads."""
    words = words_of(path, command, options, **named)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def mpirun():
    """The launcher, with the options that Open MPI needs for root and on few cores."""
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    return ["mpirun"] + (["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"] if "Open MPI" in version else [])


def start_under_mpi(path, command, options, ranks, **named):
    """Starts all ranks. The words of each rank contain its number."""
    words = mpirun()
    for rank in range(ranks):
        words += ([":"] if rank > 0 else []) + ["-n", "1"] + words_of(path, command, options, rank=rank, ranks=ranks, **named)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def run_all(path, command, options, kind, ranks, **named):
    """Runs all ranks and returns the result of rank 0. If a rank fails, prints the errors and ends this program with code 1."""
    if kind == "threads":
        processes = [start(path, command, options, ranks=ranks, **named)]
        ends = [process.communicate() for process in processes]
    elif kind == "mpirun":
        with Store(path) as store:
            processes = [start_under_mpi(path, command, options, ranks, port=store.port, **named)]
            ends = [process.communicate() for process in processes]
    else:
        with Store(path) as store:
            processes = [start(path, command, options, rank=rank, ranks=ranks, port=store.port, **named) for rank in range(ranks)]
            ends = [process.communicate() for process in processes]
    said = [error.strip() for _, error in ends]
    if any(process.returncode != 0 for process in processes):
        wrong = [line for text in said for line in text.splitlines() if line.startswith("WRONG")]
        print("\n".join(wrong or said), file=sys.stderr)
        sys.exit(f"{command} with {ranks} {kind} failed: exit codes {[process.returncode for process in processes]}")
    return json.loads(ends[0][0].strip().splitlines()[-1])
