"""Rows of the part `speed`: kernels against a copy within the device, and against PyTorch's."""
import re
import statistics

from gpu import table
from gpu.jobs import Trouble

NORMS = ["AdamW, fp32", "AdamW, bf16 with masters", "norm, fp32", "norm, bf16"]
OF_MODELS = [f"{name}, {model}" for name in ("norm with addition", "norm backward", "norm sums", "cross entropy")
             for model in ("GPT-2", "Llama")]
BATCH_NORMS = [f"{name}, ResNet-50 {layer}"
               for name in ("batch statistics", "batch norm", "batch norm sums", "batch norm backward")
               for layer in ("112x112x64", "56x56x256", "7x7x2048")]
OTHERS = ["gelu, GPT-2", "gelu backward, GPT-2", "swiglu, Llama", "swiglu backward, Llama", "rotary, Llama"]
PROGRAMS = {"check_optimizers": NORMS, "check_model": OF_MODELS + BATCH_NORMS + OTHERS}
# What PyTorch does beside which of our passes, and its words in the row.
ADAMW = {"AdamW, fp32": "the fused AdamW of PyTorch",
         "AdamW, bf16 with masters": "the fused AdamW of PyTorch with copies of bf16 gradients and weights"}


class Kernels:
    """Our check programs, which measure once for each line that they get."""

    def __init__(self, check):
        self.check, self.jobs, self.trouble = check, {}, {}
        for name in PROGRAMS:
            words = [check.floors / "tests" / name, "--speed", *check.pick([], ["--small"])]
            self.attempt(name, lambda name=name, words=words: self.start(name, words))

    def start(self, name, words):
        self.jobs[name] = self.check.start(name, words, talks=True)

    def attempt(self, name, action):
        try:
            action()
        except Trouble as trouble:
            self.trouble[name] = f"{name}: {trouble}"

    def measure(self, found):
        """Adds (microseconds, share of a copy) of every kernel to found[name]."""
        for name in PROGRAMS:
            if name not in self.trouble:
                self.attempt(name, lambda name=name: self.measure_with(name, found))

    def measure_with(self, name, found):
        job = self.jobs[name]
        job.say("")
        while True:
            line = job.hear(self.check.limit(30))
            if line is None:
                job.process.wait(10)
                job.require_running()
            if line == "end of the round":
                return
            row = re.fullmatch(r"\| (.+?) \| ([\d.]+) \| (\d+) \| ([\d.]+) \|", line)
            if row:
                found.setdefault(row.group(1), []).append((float(row.group(2)), float(row.group(4))))

    def trouble_of(self, kernel):
        for name, kernels in PROGRAMS.items():
            if kernel in kernels:
                return self.trouble.get(name, f"{name} does not measure it")
        return "no program measures it"

    def end(self):
        for job in self.jobs.values():
            job.end()


def request_of(kernel):
    if kernel in ADAMW:
        return {"do": "adamw", "kind": "fp32" if kernel.endswith("fp32") else "masters"}
    return {"do": "kernel", "name": kernel}


def ask_pytorch(torch, kernels, theirs, trouble):
    """Adds PyTorch's microseconds of every kernel to theirs[name]."""
    for kernel in kernels:
        if kernel in trouble:
            continue
        try:
            theirs.setdefault(kernel, []).append(torch.ask(120, **request_of(kernel))["us"])
        except Trouble as why:
            trouble[kernel] = str(why)


def share_row(kernel, bar, ours, ours_trouble):
    what = f"{kernel}{', 124 M' if kernel in NORMS else ''}: share of the copy's speed"
    if kernel not in ours:
        return table.failed(what, ours_trouble.trouble_of(kernel), f"{bar:.2f}")
    return table.at_least(what, statistics.median(share for _, share in ours[kernel]), bar,
                          f" ({statistics.median(us for us, _ in ours[kernel]):.1f} us)")


def beside_row(kernel, ours, theirs, ours_trouble, trouble):
    other = ADAMW.get(kernel, "torch.compile of the same expression")
    what = f"{kernel}: speed beside {other}"
    if kernel not in ours or len(ours[kernel]) > len(theirs.get(kernel, [])):
        reason = trouble.get(kernel) if kernel in ours else ours_trouble.trouble_of(kernel)
        return table.failed(what, reason or "not measured as often", "1.00")
    pairs = list(zip((us for us, _ in ours[kernel]), theirs[kernel]))
    ratio, mine, other = (statistics.median(values) for values in
                          ([b / a for a, b in pairs], [a for a, _ in pairs], [b for _, b in pairs]))
    return table.at_least(what, ratio, 1.0, f" ({mine:.1f} and {other:.1f} us)")


def rows(check, torch):
    """The rows of all kernels, measured in turn with PyTorch's."""
    compared = [kernel for kernel in NORMS + OF_MODELS + BATCH_NORMS + OTHERS if kernel in ADAMW or kernel not in NORMS]
    ours, theirs, trouble = {}, {}, {}
    ask_pytorch(torch, compared, {}, trouble)  # compiles
    mine = Kernels(check)
    try:
        for _ in range(check.pick(7, 2)):
            mine.measure(ours)
            ask_pytorch(torch, compared, theirs, trouble)
    finally:
        mine.end()
    found = [share_row(kernel, 0.85 if kernel in NORMS else 0.8, ours, mine)
             for kernel in NORMS + OF_MODELS + BATCH_NORMS + OTHERS]
    return [*found, *(beside_row(kernel, ours, theirs, mine, trouble) for kernel in compared)]
