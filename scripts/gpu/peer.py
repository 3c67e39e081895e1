"""PyTorch's side (torch_gpu.py), as programs that this check starts and asks."""
import json
import os
import sys
from pathlib import Path

from gpu import machine
from gpu.jobs import Trouble


def command(check, *words):
    """The command of PyTorch's side. In a small check it takes the CPU if PyTorch sees no GPU."""
    sizes = ["--small", "--device", "auto"] if check.small else ["--device", "cuda"]
    return [sys.executable, check.root / "scripts" / "gpu" / "torch_gpu.py", *sizes, *words]


def variables(check):
    """Python finds its own LibTorch. Another one in LD_LIBRARY_PATH is for Reigen's programs."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":")
               if folder and not list(Path(folder).glob("libtorch_*.so"))]
    return {"TORCHINDUCTOR_CACHE_DIR": check.folder / "inductor", "TRITON_CACHE_DIR": check.folder / "triton",
            "LD_LIBRARY_PATH": ":".join(folders) or None}


class Torch:
    """PyTorch in a process of its own, or in several processes that compute together (ranks).

    ask() sends a request to all of them. A process that has ended is started again by the next request.
    """

    def __init__(self, check, name="torch", ranks=1, more=None):
        self.check, self.name, self.ranks, self.more = check, name, ranks, more or {}
        self.jobs, self.context = [], 0

    def is_running(self):
        return bool(self.jobs) and all(job.is_running() for job in self.jobs)

    def start(self):
        if self.is_running():
            return
        self.end()
        meeting = self.check.runs / f"{self.name}.meeting"
        meeting.unlink(missing_ok=True)
        for rank in range(self.ranks):
            own = {**variables(self.check), **self.more}
            if self.ranks > 1:
                own |= {"RANK": rank, "WORLD_SIZE": self.ranks, "REIGEN_CHECK_MEETING": meeting,
                        "OMP_NUM_THREADS": max(1, (os.cpu_count() or 1) // self.ranks)}
            self.jobs.append(self.check.start(f"{self.name}.{rank}", command(self.check, "serve"), own, talks=True))

    def ask(self, limit=60, **request):
        """Sends the request. Returns the answers of all processes, or of the only one."""
        self.start()
        for job in self.jobs:
            job.say(json.dumps(request))
        answers = [self.answer_of(job, self.check.limit(limit)) for job in self.jobs]
        return answers if self.ranks > 1 else answers[0]

    def reserved(self):
        """MiB that PyTorch's allocator of the only process has reserved now."""
        is_new = not self.is_running()
        before = machine.used_memory() if is_new else 0
        reserved = self.ask(120, do="about")["reserved"] >> 20
        if is_new:
            self.context = max(0, machine.used_memory() - before - reserved)
        return reserved

    def memory_with(self, peak):
        """MiB that the only process would use if its allocator had reserved `peak` bytes and no more."""
        reserved = self.reserved()
        used = machine.memory_of(self.jobs[0].process.pid)
        return (self.context if used is None else used - reserved) + (peak >> 20)

    def answer_of(self, job, limit):
        while True:
            try:
                line = job.hear(limit)
            except Trouble:
                self.end()  # the next request must not get this answer
                raise
            if line is None:
                job.process.wait(10)
                job.require_running()
            if line.startswith("{"):
                break
        answer = json.loads(line)
        if "error" in answer:
            raise Trouble(f"PyTorch: {answer['error']}")
        return answer

    def end(self):
        for job in self.jobs:
            job.end()
        self.jobs = []
