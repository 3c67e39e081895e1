"""The part `train`: trainings on a GPU against the CPU, against other numbers of ranks, and against PyTorch."""
import json
import math
import re
import shutil

from gpu import machine, peer, runs, table, weights
from gpu.build import TRAIN
from gpu.check import Task
from gpu.jobs import Trouble
from gpu.runs import CUDA

RECIPES = ["mnist", "mlp", "gpt", "resnet18"]
STAGES = ["none", "optimizer", "gradients", "parameters"]


def on_cpu(check, recipe, kind):
    """The run on the CPU with which others are compared. `kind` is fp64 or fp32."""
    return runs.whole(check, f"{recipe}_cpu_{kind}", recipe, "--train.precision", kind)


def on_gpu(check, recipe, kind, *more, ranks=1, threads=False):
    """A run on the GPU. Ranks are processes, or threads of one process."""
    words = [recipe, "gpu", kind, ranks, "threads" if threads else "processes", *more]
    name = re.sub(r"[^\w]+", "_", "_".join(str(word).strip("-") for word in words))
    device = ["--train.device", "cuda:0" if threads else "cuda"]
    return runs.whole(check, name, recipe, "--train.precision", kind, *device, *more, ranks=ranks, threads=threads)


def as_on_the_cpu(check):
    """Tasks: one rank on the GPU against one rank on the CPU."""
    tasks = []
    for recipe in RECIPES:
        what = f"{recipe} on the GPU, fp64, as on the CPU"
        tasks.append(Task(what, "1e-09", lambda r=recipe, w=what: [
            runs.same_training(w, on_gpu(check, r, "fp64"), on_cpu(check, r, "fp64"), 1e-9)]))
        what = f"{recipe} on the GPU, fp32, as on the CPU"
        tasks.append(Task(what, "1e-05", lambda r=recipe, w=what: [
            runs.same_losses(w, on_gpu(check, r, "fp32"), on_cpu(check, r, "fp32"), 1e-5)]))
    return tasks


def in_ranks(check):
    """Tasks: 2, 3 and 4 ranks on the GPU against one on the CPU. 3 ranks add up micro-batches; every run clips."""
    tasks = []
    for recipe in RECIPES:
        for ranks in check.pick([2, 3, 4], [2, 3] if recipe == "mnist" else [2]):
            threads = ranks == 3 or (ranks == 4 and recipe != "mnist")
            for stage in check.pick(STAGES, ["none", "parameters"]):
                more = ["--parallel.shard", stage, *(["--train.micro_batch", 8] if ranks == 3 else [])]
                what = (f"{recipe}, {ranks} ranks{' (threads)' if threads else ''}, fp64, shard {stage}"
                        f"{', micro-batches' if ranks == 3 else ''}")

                def work(recipe=recipe, ranks=ranks, threads=threads, more=more, what=what):
                    run = on_gpu(check, recipe, "fp64", *more, ranks=ranks, threads=threads)
                    return [runs.same_training(what, run, on_cpu(check, recipe, "fp64"), 1e-9)]
                tasks.append(Task(what, "1e-09", work))
    return tasks


def with_options(check):
    """Tasks: mnist with each option of a GPU."""
    cpu64, cpu32 = (lambda: on_cpu(check, "mnist", "fp64")), (lambda: on_cpu(check, "mnist", "fp32"))
    gpu64, gpu32 = (lambda: on_gpu(check, "mnist", "fp64")), (lambda: on_gpu(check, "mnist", "fp32"))
    tf32 = lambda: on_gpu(check, "mnist", "fp32", "--train.tf32")
    graph = lambda: on_gpu(check, "mnist", "fp64", "--train.graph", "step")
    bf16 = lambda: on_gpu(check, "mnist", "bf16")
    bf16_weights = lambda: on_gpu(check, "mnist", "bf16", "--train.weights", "bf16")
    offload = lambda: on_gpu(check, "mnist", "fp64", "--parallel.offload", "pinned", ranks=2)
    as_threads = lambda: on_gpu(check, "mnist", "fp64", ranks=2, threads=True)
    clipped = lambda: on_gpu(check, "mnist", "fp64", "--train.micro_batch", 8, ranks=2)

    def as_(what, mine, theirs, bar):
        return Task(what, f"{bar:.0e}", lambda: [runs.same_losses(what, mine(), theirs(), bar)])

    def differs(what, mine, theirs):
        def work():
            found = runs.relative(mine().losses(), theirs().losses())
            return [table.row(what, f"apart by {found:.1e}", "others", 0 < found < math.inf)]
        return Task(what, "others", work)

    def made():
        what = "the graph was made by the plug-in"
        was = "CUDA graphs in" in graph().log
        return [table.row(what, "yes" if was else "no", "yes", was)]

    return [as_("mnist on the GPU, fp32 in TF32", tf32, cpu32, 1e-2),
            differs("TF32 changes the losses", tf32, gpu32),
            as_("mnist, fp64, forward and backward as a graph", graph, gpu64, 1e-12),
            Task("the graph was made by the plug-in", "yes", made),
            as_("mnist, 2 ranks, states in pinned memory", offload, cpu64, 1e-9),
            as_("mnist, 2 ranks that are threads of one GPU", as_threads, cpu64, 1e-9),
            as_("mnist, bf16 weights with fp32 masters", bf16_weights, bf16, 0.1),
            differs("bf16 weights change the losses", bf16_weights, bf16),
            as_("mnist, 2 ranks, clipped, micro-batches", clipped, cpu64, 1e-9)]


def deterministic(check):
    """Tasks: train.deterministic gives the same bits again, when resumed, and as a graph."""
    tasks = []
    for recipe, kind in (("mnist", "fp32"), ("gpt", "bf16")):
        options = ["--train.precision", kind, *CUDA, "--train.deterministic"]
        half, steps = runs.steps_of(check) // 2, runs.steps_of(check)

        def run(name, *more, recipe=recipe, options=options):
            return runs.whole(check, f"{recipe}_same_{name}", recipe, *options, *more)

        def resumed(recipe=recipe, options=options):
            name = f"{recipe}_same_resumed"
            for count, more in ((half, []), (steps, ["--run.resume", "true"])):
                words = runs.small_options(check, recipe, *options, "--parallel.shard", "none", *more, steps=count)
                ended, run = runs.start(check, name, recipe, words)
                if not ended.is_well():
                    raise Trouble(f"run {name}: {ended.reason()}")
            return run

        for how, other in (("twice", lambda run=run: run("again")),
                           (f"resumed after {half} of {steps} steps", resumed),
                           ("with and without a graph", lambda run=run: run("graph", "--train.graph", "step"))):
            what = f"{recipe}, {kind}, deterministic, {how}"
            tasks.append(Task(what, "bitwise", lambda what=what, run=run, other=other: [
                runs.same_bits(what, other(), run("first"))]))
    return tasks


def checkpoints(check):
    """Tasks: a checkpoint of 2 ranks on the GPU goes on on 3 ranks on the CPU, and from there on the GPU again."""
    tasks = []
    steps = runs.steps_of(check)
    first, second = steps // 2, steps * 3 // 4
    for number, stage in ((1, "optimizer"), (3, "parameters")):
        what = f"checkpoint of 2 GPU ranks on 3 CPU ranks and back, stage {number}"

        def work(stage=stage, what=what):
            def run(name, device, ranks, steps, *more):
                options = runs.small_options(check, "mnist", "--train.device", device, "--parallel.shard", stage,
                                             *more, steps=steps)
                return runs.trained(check, f"moved_{stage}_{name}", "mnist", options, ranks=ranks)
            straight = run("straight", "cuda", 2, steps)
            gpu = run("gpu", "cuda", 2, first)
            loaded = run("loaded", "cpu", 3, first, "--run.resume", gpu.folder)
            cpu = run("cpu", "cpu", 3, second, "--run.resume", gpu.folder)
            back = run("back", "cuda", 2, steps, "--run.resume", cpu.folder)
            resharded = check.runs / f"moved_{stage}_resharded"
            reigen = check.torch / "bin" / "reigen"
            look = [reigen, "checkpoint"]
            check.must_run(f"reshard_{stage}", [*look, "reshard", gpu.folder, resharded, "--ranks", 3], 30)
            moved = next(resharded.glob("step_*"), resharded)
            same = weights.same_bits(loaded.model(), gpu.model())
            for group in ("model", "optimizer"):
                words = [*look, "diff", gpu.folder, moved, "--group", group]
                same = check.run(f"diff_{stage}_{group}", words, 30).is_well() and same
            found = runs.relative(cpu.losses() + back.losses(), straight.losses()[first:])
            losses = f"{what}: losses of the steps after it"
            return [table.row(f"{what}: weights and states", "the same" if same else "they differ", "bitwise", same),
                    table.row(losses, f"apart by {found:.1e}", "1e-05", found <= 1e-5)]
        tasks.append(Task(what, "weights and states bitwise, losses 1e-05", work))
    return tasks


def beside_pytorch(check):
    """A task: GPT-2 124M in bf16 with our weights and batches in PyTorch."""
    steps, every = check.pick(300, 30), check.pick(50, 10)
    what = f"GPT-2 124M, bf16, our weights and {steps} batches in PyTorch, loss at every {every}th step"
    bar = "within 1 %"

    def work():
        order = check.runs / "order.txt"
        decay, betas = 0.1, (0.9, 0.95)
        options = runs.gpt2(check, check.pick(8, 4), "--train.max_steps", steps, "--run.save_initial",
                            "--data.dump_order", order, "--optim.lr", 3e-4, "--optim.warmup_steps", steps // 10,
                            "--optim.weight_decay", decay, "--optim.beta1", betas[0], "--optim.beta2", betas[1])
        run = runs.trained(check, "gpt2_curve", "gpt", options, limit=120)
        words = ["curve", f"run={run.folder}", f"text={runs.text_folder(check)}", f"order={order}",
                 f"decay={decay}", f"betas={json.dumps(betas)}", "clip=1.0"]
        output = check.must_run("torch_curve", peer.command(check, *words), 120, peer.variables(check))
        answer = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        if "error" in answer:
            raise Trouble(f"PyTorch: {answer['error']}")
        ours, theirs = (losses[every - 1::every] for losses in (run.losses(), answer["losses"]))
        runs.drop(run)
        apart = runs.relative(ours, theirs)
        pairs = ", ".join(f"{a:.3f}/{b:.3f}" for a, b in zip(ours, theirs))
        return [table.row(what, f"apart by {100 * apart:.2f} % ({pairs})", bar, apart <= 0.01)]
    return Task(what, bar, work)


def memory_told(check):
    what = "memory that the trainer reports, beside LibTorch's allocator"
    bar = "within 3 %"

    def work():
        told = on_gpu(check, "mnist", "fp64").summary().get("memory_bytes", {})
        of_rank = {name: value["by_rank"][0] for name, value in told.items() if value.get("by_rank")}
        if "allocator_in_steps" not in of_rank:
            raise Trouble("summary.json has no memory_bytes.allocator_in_steps: this LibTorch does not tell it")
        there = of_rank["allocator_in_steps"] + of_rank["of_the_group"]
        parts = ["parameters", "gradients", "optimizer", "buffers", "step", "batches"]
        apart = abs(sum(of_rank[part] for part in parts) - there) / there
        return [table.row(what, f"apart by {100 * apart:.1f} %", bar, apart <= 0.03)]
    return Task(what, bar, work)


def too_large(check):
    """A task: the error of a batch that does not fit names a setting that fits."""
    what = "a batch that does not fit: the setting that the error names"
    bar = "code 71, and the setting fits"

    def work():
        # A sample of GPT-2 without its vocabulary takes some 400 MB. So this batch does not fit, nor half of it.
        samples = math.ceil(3 * machine.whole_memory() / 381) if not check.small else 256
        options = runs.gpt2(check, samples, "--train.max_steps", 2)
        at = options.index("--model.vocab")
        options[at + 1] = 64
        ended, run = runs.start(check, "too_large", "gpt", options)
        if ended.is_well():
            return [table.failed(what, f"{samples} samples fit", bar)]
        if ended.code != 71 or ended.timed_out:
            return [table.failed(what, f"{samples} samples: {ended.reason()}", bar)]
        named = re.search(r"fix: ((?:--\S+ \S+ )*--\S+ \S+?),? ", ended.output + " ")
        if not named:
            return [table.failed(what, f"no setting in: {ended.reason()}", bar)]
        shutil.rmtree(run.folder, ignore_errors=True)
        again, second = runs.start(check, "large_in_parts", "gpt", [*options, *named.group(1).split()])
        runs.drop(second)
        found = f"{samples} samples: code 71; {named.group(1)}: {'fits' if again.is_well() else again.reason()}"
        return [table.row(what, found, bar, again.is_well())]
    return Task(what, bar, work)


def run(check):
    check.together("train", [beside_pytorch(check), *as_on_the_cpu(check), *with_options(check), *in_ranks(check),
                             *deterministic(check), *checkpoints(check), memory_told(check)], TRAIN)
    check.one_by_one("train", [too_large(check)], TRAIN)
