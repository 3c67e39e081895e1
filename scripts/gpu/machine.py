"""What this machine has: GPUs, the folders of CUDA, NCCL and LibTorch, and NVIDIA's daemon for shared GPUs (MPS)."""
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from gpu import jobs
from gpu.jobs import Trouble

MPS = "nvidia-cuda-mps-control"


def ask(*words):
    """The lines that nvidia-smi prints. There are none without nvidia-smi."""
    try:
        done = subprocess.run(["nvidia-smi", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def count_gpus():
    return sum(line.startswith("GPU") for line in ask("--list-gpus"))


def card_and_driver():
    found = sorted(set(ask("--query-gpu=name,driver_version", "--format=csv,noheader")))
    card, _, driver = (found[0] if found else "unknown, unknown").rpartition(", ")
    return card, driver


def number(query):
    found = ask(f"--query-gpu={query}", "--format=csv,noheader,nounits")
    try:
        return int(float(found[0]))
    except (IndexError, ValueError):
        raise Trouble(f"nvidia-smi does not tell {query}") from None


def used_memory():
    """MiB of the first GPU that are in use."""
    return number("memory.used")


def whole_memory():
    """MiB that the first GPU has."""
    return number("memory.total")


def memory_of(pid):
    """MiB of the first GPU that the process uses; None if nvidia-smi does not show this process."""
    for line in ask("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"):
        shown, _, used = line.partition(",")
        if shown.strip() == str(pid) and used.strip().isdigit():
            return int(used)
    return None


def beside_python(header):
    """The folder among Python's own GPU libraries that holds the header file; empty if none does."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(place).glob(f"*/include/{header}")):
            return str(found.parent.parent)
    return ""


def torch_folder():
    """The folder of an importable PyTorch, whose LibTorch Reigen is built with."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise Trouble("Python finds no module torch")
    return Path(list(spec.submodule_search_locations)[0])


def set_roots():
    """Sets NCCL_ROOT and CUDA_ROOT in the environment if they are not set yet."""
    environment = os.environ
    environment["NCCL_ROOT"] = environment.get("NCCL_ROOT") or beside_python("nccl.h")
    environment["CUDA_ROOT"] = (environment.get("CUDA_ROOT") or environment.get("CUDA_HOME") or
                                beside_python("cuda_runtime_api.h"))


class Mps:
    """An MPS daemon of this check's own. Only programs that get its variables use it.

    with Mps(folder) as variables: ...
    """

    def __init__(self, folder, may_lack=False):
        """With `may_lack`, a machine without the daemon gives no variables instead of Trouble."""
        self.log, self.may_lack, self.pipes = folder / "mps.log", may_lack, None

    def __enter__(self):
        if shutil.which(MPS) is None:
            if self.may_lack:
                return {}
            raise Trouble(f"there is no {MPS}")
        self.pipes = tempfile.mkdtemp(prefix="mps")  # a short path, because it is the name of a socket
        self.variables = {"CUDA_MPS_PIPE_DIRECTORY": self.pipes, "CUDA_MPS_LOG_DIRECTORY": self.pipes}
        started = jobs.run([MPS, "-d"], 30, self.log, self.variables)
        # The daemon has left the group of the program that started it, so it lives on.
        if not started.is_well():
            self.__exit__()
            raise Trouble(f"{MPS}: {started.reason()}")
        return self.variables

    def __exit__(self, *_):
        if self.pipes is None:
            return
        try:
            subprocess.run([MPS], input=b"quit\n", env=jobs.with_variables(self.variables), timeout=30, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            pass  # it is killed below
        self.kill_daemon()
        shutil.rmtree(self.pipes, ignore_errors=True)

    def kill_daemon(self):
        """Kills what is left of the daemon: the processes that have its folder in their environment."""
        mark = f"CUDA_MPS_PIPE_DIRECTORY={self.pipes}".encode()
        for turn in range(20):
            left = []
            for pid in jobs.processes():
                try:
                    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
                except OSError:
                    continue  # it has ended, or belongs to somebody else
                if mark in words and name.startswith("nvidia-cuda-mps"):
                    left.append(pid)
            if not left:
                return
            for pid in left:
                jobs.send(pid, signal.SIGTERM if turn < 10 else signal.SIGKILL)
            time.sleep(0.1)
