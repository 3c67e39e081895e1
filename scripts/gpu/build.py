"""The part `build`: two trees, in the background as far as possible.

The floors without LibTorch are built in build/gpu, reigen-train in build/gpu_torch with the LibTorch of an importable
PyTorch. Both are built at the same time. The parts that need only the floors begin while the other tree is compiled.
Meanwhile PyTorch compiles its models, so that it finds them in its cache later.
"""
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gpu import jobs, machine, peer, table
from gpu.jobs import Trouble

# The system's compiler, because the compiler that CXX names may link its own C++ library.
COMMON = ["-DCMAKE_CXX_COMPILER=/usr/bin/g++", "-DCMAKE_C_COMPILER=/usr/bin/gcc", "-DREIGEN_CUDA=ON",
          "-DREIGEN_BUILD_TESTS=OFF", "-DREIGEN_MPI=OFF", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=4"]
TARGETS_OF_FLOORS = ["reigen", "c_all_reduce", "reigen_cuda", "reigen_cuda_faults", "check_kernels", "check_model",
                     "check_optimizers", "check_group"]
TARGETS_WITH_TORCH = ["reigen", "reigen-train", "reigen_cuda", "reigen_torch_cuda", "check_step"]
FLOORS, TRAIN = "built, floors without LibTorch", "built, reigen-train"
WARM_UPS = [["model=gpt2", "batch=16"], ["model=gpt2", "batch=32"], ["model=mlp", "batch=64", "kernels=true"]]


class Builds:
    """Builds each tree at most once. The rows of a build belong to the part `build`."""

    def __init__(self, check):
        self.check, self.has_failed, self.lock = check, False, threading.Lock()
        self.pool, self.futures, self.told, self.warm_ups = ThreadPoolExecutor(2), {}, set(), []
        self.finished = time.monotonic()  # when the last build ended

    def start(self, name):
        with self.lock:
            if name not in self.futures:
                make = self.make_floors if name == FLOORS else self.make_train
                self.futures[name] = self.pool.submit(make)
            return self.futures[name]

    def wait(self, name):
        """Waits for the build, and tells its row once. Throws Trouble if the build has failed."""
        future = self.start(name)
        error = future.exception()
        with self.lock:
            is_new = name not in self.told
            self.told.add(name)
        if error is None:
            if is_new:
                self.check.table.add("build", table.row(name, future.result(), "", True))
            return
        self.has_failed = True
        if is_new:
            self.check.table.add("build", table.failed(name, str(error), ""))
        raise Trouble(f"not {name}")

    def make_floors(self):
        # These come first, because most parts wait for them.
        return self.make(self.check.floors, ["-DREIGEN_WITH_TORCH=OFF", "-DREIGEN_NCCL=ON"], TARGETS_OF_FLOORS, [])

    def make_train(self):
        if self.check.built:
            return f"programs of {self.check.built}"
        torch = machine.torch_folder()
        return self.make(self.check.torch, [f"-DREIGEN_TORCH={torch}"], TARGETS_WITH_TORCH, ["nice", "-n", "10"])

    def make(self, folder, options, targets, front):
        if self.check.built:
            return f"programs of {self.check.built}"
        begin = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        prefix = f"-DCMAKE_PREFIX_PATH={self.check.root / '.gpu' / 'usr'}"
        configure = [*front, "cmake", "-S", self.check.root, "-B", folder, *generator, *COMMON, *options, prefix]
        compile_all = [*front, "cmake", "--build", folder, "--parallel", self.check.cores, "--target", *targets]
        for name, command in (("configure", configure), ("build", compile_all)):
            ended = jobs.run(command, self.check.limit(900), folder / f"{name}.log", folder=self.check.root)
            if not ended.is_well():
                print("\n".join(ended.output.splitlines()[-20:]), flush=True)
                raise Trouble(f"{ended.reason()} ({folder / name}.log)")
        self.finished = time.monotonic()
        return f"{self.finished - begin:.0f} s"

    def warm_up(self):
        """Lets PyTorch compile its models in the background."""
        if self.check.small:
            return
        for words in WARM_UPS:
            try:
                command = peer.command(self.check, "warm", *words)
                self.warm_ups.append(self.check.start("warm_" + "_".join(words), command, peer.variables(self.check)))
            except Trouble:
                pass  # the rows that need PyTorch say what is missing

    def end_warm_ups(self, limit):
        until = time.monotonic() + limit
        while any(job.is_running() for job in self.warm_ups) and time.monotonic() < until:
            time.sleep(0.2)
        for job in self.warm_ups:
            job.end()
        self.warm_ups = []

    def end(self):
        self.end_warm_ups(0)
        self.pool.shutdown(wait=False, cancel_futures=True)


def run(check):
    check.builds.start(FLOORS)
    check.builds.start(TRAIN)
    check.builds.warm_up()
    check.builds.wait(FLOORS)
