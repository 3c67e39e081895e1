"""The part `test`: results on a GPU against those of the host, without LibTorch."""
from gpu import table
from gpu.build import FLOORS
from gpu.check import Task

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all",
              "barrier", "reduce_scatter_v", "all_gather_v", "gather_v", "scatter_v", "all_to_all_v", "send_recv"]
TYPES = ["int8", "uint8", "int32", "int64", "half", "bfloat16", "double"]
SAME = " 0 differ from the host's"
EXACT = "Out of bounds values : 0 OK"


def passes(check, what, words, command, limit=120):
    """A task: the program must end with 0 and print the words."""
    def work():
        ended = check.run(what, command, limit)
        if ended.is_well() and words in ended.output:
            return [table.row(what, words.strip(), "the same", True)]
        reason = ended.reason() if not ended.is_well() else f"it printed no '{words.strip()}'"
        return [table.failed(what, reason, words.strip())]
    return Task(what, words.strip(), work)


def needs_nothing(check, file):
    """A task: the program or library must start on a machine without CUDA and NCCL."""
    what = f"{file.name} needs of CUDA and NCCL to start"

    def work():
        output = check.must_run(what, ["readelf", "-d", file], 30)
        needed = sum("NEEDED" in line and ("nccl" in line or "cuda" in line) for line in output.splitlines())
        return [table.row(what, needed, 0, needed == 0)]
    return Task(what, 0, work)


def of_kernels(check):
    tests, small = check.floors / "tests", check.pick([], ["--small"])
    return [passes(check, "kernels of the plug-in, bits", " 0 outputs differ from the host's",
                   [tests / "check_kernels", *small], 180),
            passes(check, "optimizers of the plug-in, 10 steps, bits", SAME, [tests / "check_optimizers", *small]),
            passes(check, "layers of models of the plug-in, numbers", SAME, [tests / "check_model", *small], 180)]


def of_groups(check):
    group = check.floors / "tests" / "check_group"
    start = [check.floors / "bin" / "reigen", "run", "--no-mps", "--prefix", "none", "-n"]
    usual = check.pick([], ["--calls", 100, "--most", 1])
    many = check.pick(10_000, 300)
    tasks = [passes(check, f"cuda_ipc, {many} random calls on 3 streams, 3 threads", SAME,
                    [group, "--threads", 3, "--calls", many, "--most", 1], 200)]
    for ranks in (1, 2, 3, 4):
        threads = f"cuda_ipc, {ranks} threads on {check.gpus} GPU(s)"
        tasks.append(passes(check, threads, SAME, [group, "--threads", ranks, *usual]))
        tasks.append(passes(check, f"cuda_ipc, {ranks} processes", SAME, [*start, ranks, group, *usual]))
    return tasks


def of_bench(check):
    bench = [check.floors / "bin" / "reigen", "bench"]
    sizes = ["-b", "64", "-e", check.pick("16M", "32K"), "-f", "512", "--iters", check.pick("10", "2"), "--check"]
    tasks = []
    for operation in OPERATIONS:
        tasks.append(passes(check, f"bench {operation}, cuda_ipc, 2 processes", EXACT,
                            [*bench, operation, "--device", "cuda", "-n", 2, *sizes]))
    for operation in OPERATIONS:
        if operation != "send_recv" or check.gpus > 1:  # a rank of NCCL has a GPU of its own
            tasks.append(passes(check, f"bench {operation}, nccl, {check.gpus} rank(s)", EXACT,
                                [*bench, operation, "--backend", "nccl", "-n", check.gpus, *sizes]))
    for element in TYPES:
        tasks.append(passes(check, f"bench all_reduce of {element}, nccl", EXACT,
                            [*bench, "all_reduce", "-d", element, "--backend", "nccl", "-n", check.gpus, "-b", "64K",
                             "-e", "64K", "--iters", 10, "--check"]))
    return tasks


def run(check):
    check.builds.wait(FLOORS)
    programs = check.floors
    tasks = [needs_nothing(check, programs / "bin" / "reigen"),
             needs_nothing(check, programs / "src" / "c" / "libreigen_c.so"),
             passes(check, "C interface", "the last sum is", [programs / "bin" / "c_all_reduce"]),
             *of_kernels(check),
             passes(check, "reigen devices", "GPU", [programs / "bin" / "reigen", "devices"])]
    check.together("test", [*tasks, *of_groups(check), *of_bench(check)])
