"""The part `speed`: kernels, all_reduce, and trainings beside PyTorch and beside ranks that do not communicate."""
import json
import re
import shutil
import statistics
from contextlib import ExitStack

from gpu import kernels, machine, runs, table, turns
from gpu.build import FLOORS, TRAIN
from gpu.check import Task
from gpu.jobs import Trouble
from gpu.machine import Mps
from gpu.peer import Torch

ROUNDS = 7


def rounds_of(check):
    return check.pick(ROUNDS, 2)


# ---- all_reduce of ranks on one GPU

def table_of_group(check, name, command):
    """size -> (microseconds, share of the bound) of check_group --speed. The whole table goes to the file `speeds`."""
    command = [*command, "--speed", *check.pick([], ["--most", 8])]
    output = check.must_run(name, command, 90)
    with open(check.folder / "speeds", "a", encoding="utf-8") as file:
        file.write(f"\n{name}:\n\n{output}")
    return {size: (float(us), float(share))
            for size, us, share in re.findall(r"^\| (.+?) \| ([\d.]+) \| \d+ \| ([\d.]+) \|$", output, re.MULTILINE)}


def rows_of_group(check, name, how, command, bars):
    """A task for the sizes that have a bar. The time of 1 KiB is told beside it."""
    def work():
        found = table_of_group(check, name, command)
        rows = []
        for size, bar in bars.items():
            what = f"all_reduce {size}, {how}: share of the copy's speed"
            if size not in found:
                rows.append(table.failed(what, "not measured", f"{bar:.2f}"))
            else:
                rows.append(table.at_least(what, found[size][1], bar, f" (1 KiB in {found['1024 B'][0]:.0f} us)"))
        return rows
    return Task(f"all_reduce, {how}: share of the copy's speed", " and ".join(map(str, bars.values())), work)


def of_groups(check):
    group = check.floors / "tests" / "check_group"
    start = [check.floors / "bin" / "reigen", "run", "--no-mps", "--prefix", "none", "-n"]
    (check.folder / "speeds").unlink(missing_ok=True)
    middle, large = check.pick(("64 MiB", "256 MiB"), ("1 MiB", "8 MiB"))
    both = {middle: 0.75, large: 0.85}
    tasks = []
    for ranks in (2, 4):
        tasks.append(rows_of_group(check, f"threads.{ranks}", f"{ranks} threads", [group, "--threads", ranks], both))
    tasks.append(rows_of_group(check, "processes.2", "2 processes without MPS", [*start, 2, group], {large: 0.45}))
    tasks.append(rows_of_group(check, "processes.4", "4 processes without MPS", [*start, 4, group], {}))
    check.one_by_one("speed", tasks)

    def with_mps():
        # The launcher's own daemon. A stand-in for a GPU has none.
        how = check.pick("--gpus-shared", "--no-mps")
        shared = [check.floors / "bin" / "reigen", "run", how, "--prefix", "none", "-n"]
        return rows_of_group(check, "mps.2", "2 processes with MPS", [*shared, 2, group], both).work()
    what = "all_reduce, 2 processes with MPS: share of the copy's speed"
    check.one_by_one("speed", [Task(what, "0.75 and 0.85", with_mps)])


# ---- GPT-2, ResNet-50 and a perceptron beside PyTorch

def seconds_of_turn(check, usual):
    return check.pick(usual, 3)


def memory_row(what, torch, ours, compiled, used, reserved):
    """Compares peak memory. `used` and `reserved`: MiB in use, and reserved by PyTorch, before the two began."""
    bar = "at most 1.00"
    for one in (ours, compiled):
        if one.trouble is not None:
            return table.failed(what, one.trouble, bar)
    mine = machine.memory_of(ours.jobs[0].process.pid)
    if mine is None:
        mine = machine.used_memory() - used - (torch.reserved() - reserved)
    theirs = torch.memory_with(compiled.prepared["peak_reserved"])
    return table.row(what, f"{mine / max(1, theirs):.2f} ({mine} and {theirs} MiB)", bar, mine <= theirs)


def of_gpt2(check, torch, batch):
    """A task: GPT-2 124M beside PyTorch, eager and compiled: speed and memory."""
    words = f"GPT-2 124M, bf16, batch {batch}"
    unit = {"unit": "tokens/s", "factor": runs.context(check)}

    def work():
        ours = turns.Training(check, f"ours {batch}", "gpt", runs.gpt2(check, batch))
        compiled = turns.Peer(torch, "compiled", model="gpt2", mode="compiled", batch=batch)
        eager = turns.Peer(torch, "eager", model="gpt2", mode="eager", batch=batch)
        try:
            reserved = attempt(torch.reserved, 0)
            used = machine.used_memory()
            turns.prepare([ours, compiled, eager])
            memory = memory_row(f"{words}: peak memory beside torch.compile's", torch, ours, compiled, used, reserved)
            found = turns.measure([ours, compiled, eager], rounds_of(check), seconds_of_turn(check, 0.9))
        finally:
            ours.end()
            attempt(lambda: torch.ask(do="forget"))
        return [found.row(f"{words}: speed beside torch.compile", ours.name, "compiled", 1.0, **unit),
                found.row(f"{words}: speed beside PyTorch eager", ours.name, "eager", 1.4, **unit), memory]
    return Task(f"{words}: speed and memory beside PyTorch", "1.00 and 1.40", work)


def attempt(action, otherwise=None):
    try:
        return action()
    except Trouble:
        return otherwise


def of_resnet50(check, torch):
    what, batch = "ResNet-50, 224, bf16, channels last, batch 256: speed beside PyTorch eager", check.pick(256, 2)

    def work():
        options = ["--train.global_batch", batch, "--train.precision", "bf16", "--model.norm_batch", 0,
                   "--data.size", check.pick(224, 32), *runs.CUDA]
        ours = turns.Training(check, "ours resnet50", "resnet50", options)
        eager = turns.Peer(torch, "eager", model="resnet50", mode="eager", batch=batch)
        try:
            turns.prepare([ours, eager])
            found = turns.measure([ours, eager], rounds_of(check), seconds_of_turn(check, 1.2))
        finally:
            ours.end()
            attempt(lambda: torch.ask(do="forget"))
        return [found.row(what, ours.name, "eager", 1.2, "images/s")]
    return Task(what, "1.20", work)


def of_small_models(check, torch):
    """A task: what a graph gains, beside PyTorch and beside no graph; and what deterministic steps cost."""
    batch = ["--train.global_batch", 64, *runs.CUDA]
    graph = ["--train.graph", "step"]
    sizes = ["--model.layers", 2, "--model.dim", 512]
    words = "MLP 1024-512-512-10 (the recipe pads 784 inputs to 1024), batch 64, graph"

    def work():
        def training(name, recipe, *options):
            return turns.Training(check, name, recipe, [*batch, *options])
        digits = ["--data.path", runs.large_digits(check)]
        mlp = training("mlp graph", "mlp", *sizes, *graph, *digits)
        peers = [turns.Peer(torch, mode, model="mlp", mode=mode, batch=64) for mode in ("eager", "graphs")]
        dim = ["--model.dim", check.pick(1024, 64)]
        large = [training("large mlp graph", "mlp", *dim, *graph, *digits), training("large mlp", "mlp", *dim, *digits)]
        width = ["--model.width", check.pick(64, 4)]
        same = [training("resnet18", "resnet18", *width),
                training("resnet18 deterministic", "resnet18", *width, "--train.deterministic")]
        trainings = [mlp, *large, *same]
        try:
            turns.prepare([*trainings, *peers])
            rounds, seconds = rounds_of(check), seconds_of_turn(check, 0.5)
            found = turns.measure([mlp, *peers], rounds, seconds)
            of_large = turns.measure(large, check.pick(3, 1), seconds)
            of_same = turns.measure(same, check.pick(5, 1), seconds)
        finally:
            for one in trainings:
                one.end()
            attempt(lambda: torch.ask(do="forget"))
        cost = "train.deterministic: speed beside that without it, resnet18, batch 64"
        told = attempt(lambda: f"{of_same.ratio('resnet18 deterministic', 'resnet18'):.2f}")
        return [of_large.row("mlp, batch 64: speed with a graph, as a multiple of that without", "large mlp graph",
                             "large mlp", 1.5),
                found.row(f"{words}: speed beside PyTorch eager", mlp.name, "eager", 3.0),
                found.row(f"{words}: speed beside torch.compile, mode reduce-overhead", mlp.name, "graphs", 1.0),
                table.told(cost, told) if told else table.failed(cost, str(same[0].trouble or same[1].trouble), "told")]
    return Task(f"{words}: speed beside PyTorch", "3.00 and 1.00", work)


# ---- ranks on one GPU

def of_bare_loop(check):
    what = "data_parallel on one rank beside the bare loop, GPT-2 124M, bf16, batch 8"

    def work():
        output = check.must_run("check_step", [check.torch / "tests" / "check_step", *check.pick([], ["--small"])], 120)
        found = re.search(r"as a share of the bare loop's: ([\d.]+)", output)
        if not found:
            raise Trouble("check_step printed no share")
        share = float(found.group(1))
        return [table.row(what, f"{share:.3f}", "0.990", share >= 0.99)]
    return Task(what, "0.990", work)


def in_ranks(check, name, ranks, variables, *options, copies=1):
    """GPT-2 with batch 8 on each rank; or `copies` runs of one rank each, which do not communicate."""
    each = check.pick(8, 2)
    return turns.Training(check, name, "gpt", runs.gpt2(check, ranks * each, *options), ranks, copies, variables)


def of_two_ranks(check):
    """A task: 2 ranks under MPS beside 2 silent ones, stage 3 beside stage 0, and PyTorch's DDP over Gloo."""
    words = "2 ranks on one GPU, GPT-2 124M, bf16, batch 8 each, MPS"
    unit = {"unit": "tokens/s", "factor": runs.context(check)}

    def work():
        with Mps(check.folder, may_lack=check.small) as variables, ExitStack() as ending:
            stage0 = in_ranks(check, "2 ranks", 2, variables, "--parallel.shard", "none")
            stage3 = in_ranks(check, "2 ranks stage 3", 2, variables, "--parallel.shard", "parameters")
            silent = in_ranks(check, "2 silent", 1, variables, copies=2)
            gloo = Torch(check, "gloo", 2, variables)
            ddp = turns.Peer(gloo, "DDP", model="gpt2", mode="eager", batch=check.pick(8, 2))
            for one in (stage0, stage3, silent, gloo):
                ending.callback(one.end)
            turns.prepare([stage0, stage3, silent])
            found = turns.measure([stage0, stage3, silent], rounds_of(check), seconds_of_turn(check, 1.2))
            stage3.end()
            silent.end()
            ddp.attempt(ddp.prepare)
            stage0.windows = []
            beside = turns.measure([stage0, ddp], check.pick(5, 1), seconds_of_turn(check, 1.2))
        return [found.row(f"{words}: speed beside 2 silent ranks", stage0.name, silent.name, 0.92, **unit),
                found.row(f"{words}: stage 3 beside stage 0", stage3.name, stage0.name, 0.85, **unit),
                beside.row(f"{words}: speed beside PyTorch's DDP over Gloo", stage0.name, "DDP", 6.0, **unit)]
    return Task(words, "0.92, 0.85 and 6.00", work)


def of_four_ranks(check):
    words = "4 ranks on one GPU, GPT-2 124M, bf16, batch 8 each, MPS: speed beside 4 silent ranks"

    def work():
        with Mps(check.folder, may_lack=check.small) as variables, ExitStack() as ending:
            ours = in_ranks(check, "4 ranks", 4, variables, "--parallel.shard", "none")
            silent = in_ranks(check, "4 silent", 1, variables, copies=4)
            for one in (ours, silent):
                ending.callback(one.end)
            turns.prepare([ours, silent])
            found = turns.measure([ours, silent], rounds_of(check), seconds_of_turn(check, 1.5))
        return [found.row(words, ours.name, silent.name, 0.85, unit="tokens/s", factor=runs.context(check))]
    return Task(words, "0.85", work)


# ---- a GPU each

def of_several_gpus(check):
    """A task: nccl and cuda_ipc beside nccl-tests, on a machine with a GPU for each rank."""
    what = "a GPU each: all_reduce over nccl and cuda_ipc beside nccl-tests"
    bar = "1.00 from 1 MiB on, 0.50 of the latency below 64 KiB"

    def work():
        if check.gpus < 2:
            return [table.told(what, "needs two GPUs")]
        if shutil.which("all_reduce_perf") is None:
            raise Trouble("there is no all_reduce_perf (nccl-tests) in PATH")
        sizes = ["-b", "1K", "-e", "64M", "-f", 4]
        output = check.must_run("nccl_tests", ["all_reduce_perf", *sizes, "-g", check.gpus, "-n", 50], 120)
        theirs = {int(size): float(us) for size, us in
                  re.findall(r"^\s*(\d+)\s+\d+\s+float\s+sum\s+-?\d+\s+([\d.]+)", output, re.MULTILINE)}
        rows = []
        for backend in ("nccl", "cuda_ipc"):
            path = check.folder / f"all_reduce.{backend}.json"
            words = [check.floors / "bin" / "reigen", "bench", "all_reduce", "--device", "cuda", "--backend", backend]
            check.must_run(f"bench_{backend}", [*words, "-n", check.gpus, *sizes, "--json", path], 120)
            ours = {one["bytes"]: one["time_us_p50"] for one in json.loads(path.read_text(encoding="utf-8"))}
            large = [theirs[size] / ours[size] for size in ours if size in theirs and size >= 1 << 20]
            small = [ours[size] / theirs[size] for size in ours if size in theirs and size < 64 << 10]
            if not large or not small:
                raise Trouble("nccl-tests printed other sizes")
            speed, latency = min(large), statistics.median(small)
            found = f"speed {speed:.2f}, latency {latency:.2f} of nccl-tests'"
            rows.append(table.row(f"{what}, {backend}", found, bar, speed >= 1 and latency <= 0.5))
        return rows
    return Task(what, bar, work)


def run(check):
    check.builds.end_warm_ups(check.limit(60))
    check.builds.wait(FLOORS)
    torch = Torch(check)
    try:
        attempt(torch.reserved)  # starts it while nothing else uses the GPU
        check.one_by_one("speed", [Task("kernels", "0.80, 0.85 and 1.00", lambda: kernels.rows(check, torch))])
        of_groups(check)
        batches = check.pick((16, 32), (4, 6))
        check.one_by_one("speed", [*(of_gpt2(check, torch, batch) for batch in batches), of_resnet50(check, torch),
                                   of_small_models(check, torch)], TRAIN)
    finally:
        torch.end()
    check.one_by_one("speed", [of_bare_loop(check), of_two_ranks(check), of_four_ranks(check)], TRAIN)
    check.one_by_one("speed", [of_several_gpus(check)])
