// One rank of a row of the fault matrix. scripts/check/faults causes the faults. The first line of the rank is "ready".
// Then it works until something happens, and reports that in one line of JSON.
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "reigen/base/error.h"
#include "trial/commands.h"
#include "trial/grid.h"
#include "trial/trial.h"

namespace reigen::trial {

namespace {

using comm::DataType;
using comm::OperationKind;
using comm::ReduceOp;

void say(nlohmann::json line) {
  line["at"] = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

const char* type_of(const Error& error) {
  if (dynamic_cast<const InvalidArgument*>(&error) != nullptr) return "InvalidArgument";
  if (dynamic_cast<const Timeout*>(&error) != nullptr) return "Timeout";
  if (dynamic_cast<const PeerLost*>(&error) != nullptr) return "PeerLost";
  if (dynamic_cast<const CollectiveMismatch*>(&error) != nullptr) return "CollectiveMismatch";
  if (dynamic_cast<const Aborted*>(&error) != nullptr) return "Aborted";
  if (dynamic_cast<const IoError*>(&error) != nullptr) return "IoError";
  if (dynamic_cast<const BackendError*>(&error) != nullptr) return "BackendError";
  return "Error";
}

constexpr OperationKind kKinds[] = {OperationKind::kAllReduce, OperationKind::kAllToAll, OperationKind::kSend,
                                    OperationKind::kBroadcast, OperationKind::kGather,   OperationKind::kReduceScatter,
                                    OperationKind::kBarrier};
constexpr std::size_t kCounts[] = {10, 3000, 200000};

void say_wrong(const std::string& what) {
  say({{"type", "WRONG"}, {"code", 1}, {"text", what}});
  ::_exit(1);
}

// Works until a call throws. The seed decides whether it repeats one operation or split(), or mixes all of them.
void work(Communicator& world, std::uint64_t seed) {
  Supply supply(world, true);
  const std::uint64_t focus = mix(seed) % 10;  // 7: split(), 8 and 9: all of them
  for (std::uint64_t i = 0;; ++i) {
    const std::uint64_t hash = mix(seed * 1000003 + i);
    const std::uint64_t what = focus < 8 ? focus : hash % 8;
    if (what == 7) {
      auto part = world.split(static_cast<int>(hash % 2) * (world.rank() % 2), 0);
      part->barrier();
      continue;
    }
    Problem p{.kind = kKinds[what], .type = DataType::kFloat32, .count = kCounts[mix(seed + 1) % 3], .seed = i};
    p.memory = static_cast<Memory>(mix(seed + 2) % 3);
    p.manner = static_cast<Manner>(mix(seed + 3) % 4);
    p.root = static_cast<int>(hash % static_cast<std::uint64_t>(world.size()));
    Trial trial(p, world, supply);
    trial.run();
    if (const auto wrong = trial.find_wrong()) say_wrong(*wrong);
  }
}

// Mixes all operations and split() for `time` by rank 0's clock. Returns the number of calls.
std::uint64_t work_for(Communicator& world, std::uint64_t seed, std::chrono::seconds time) {
  Supply supply(world, true);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0;; ++i) {
    std::uint8_t goes_on = std::chrono::steady_clock::now() - begin < time ? 1 : 0;
    world.broadcast(&goes_on, 1, DataType::kUint8, 0);
    if (goes_on == 0) return i;
    const std::uint64_t hash = mix(seed * 1000003 + i);
    if (hash % 16 == 15) {
      world.split(static_cast<int>(hash % 2) * (world.rank() % 2), 0)->barrier();
      continue;
    }
    Problem p{.kind = kKinds[hash % 7], .type = DataType::kFloat32, .count = kCounts[(hash >> 8) % 64 / 31], .seed = i};
    p.manner = static_cast<Manner>((hash >> 16) % 4);
    p.root = static_cast<int>((hash >> 24) % static_cast<std::uint64_t>(world.size()));
    Trial trial(p, world, supply);
    trial.run();
    if (const auto wrong = trial.find_wrong()) say_wrong(*wrong);
  }
}

// Makes a few calls. Some ranks are slow in the last one. Each rank then ends in one of four ways in which programs
// end. In three of these ways, nothing destroys the communicator.
void end_early(const Self& self, std::unique_ptr<Communicator> world) {
  const std::uint64_t seed = self.arguments.seed;
  Supply supply(*world, true);
  const std::uint64_t calls = 1 + mix(seed + 1) % 6;
  for (std::uint64_t i = 0; i < calls; ++i) {
    const std::uint64_t hash = mix(seed * 1000003 + i);
    Problem p{.kind = kKinds[hash % 7], .type = DataType::kFloat32, .count = kCounts[(hash >> 8) % 3], .seed = i};
    p.root = static_cast<int>((hash >> 24) % static_cast<std::uint64_t>(world->size()));
    Trial trial(p, *world, supply);
    const std::uint64_t own = mix(hash + static_cast<std::uint64_t>(self.rank));
    if (i + 1 < calls) {
      trial.run();
    } else {
      const auto works = trial.start(comm::Progress::kCaller);
      std::this_thread::sleep_for(std::chrono::milliseconds(own % 3 * (own >> 8) % 700));
      for (const Work& work : works) work.wait();
    }
    if (const auto wrong = trial.find_wrong()) say_wrong(*wrong);
  }
  say({{"type", "none"}, {"code", 0}, {"text", ""}});
  switch (mix(seed + 77 + static_cast<std::uint64_t>(self.rank)) % 4) {
    case 0: std::_Exit(0);
    case 1: std::exit(0);
    case 2: static_cast<void>(world.release()); break;
    default: world.reset();
  }
}

// After a few correct calls, one rank makes another call than the others.
void mismatch(Communicator& world, std::uint64_t seed) {
  const int culprit = static_cast<int>(mix(seed) % static_cast<std::uint64_t>(world.size()));
  const bool odd = world.rank() == culprit;
  std::vector<float> x(4000);
  std::vector<float> y(4000 * static_cast<std::size_t>(world.size()));
  const std::size_t n = mix(seed + 1) % 2 == 0 ? 100 : 3000;
  const auto sum = [&](std::size_t count, DataType type, ReduceOp op, const std::string& tag) {
    world.all_reduce(x.data(), x.data(), count, type, op, {.tag = tag});
  };
  for (std::uint64_t i = 0; i < mix(seed + 2) % 20; ++i) sum(n, DataType::kFloat32, ReduceOp::kSum, "");
  std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), 10);
  if (odd) counts[0] = 11;
  switch (seed % 9) {
    case 0: sum(odd ? n + 1 : n, DataType::kFloat32, ReduceOp::kSum, ""); break;
    case 1: sum(n, odd ? DataType::kInt32 : DataType::kFloat32, ReduceOp::kSum, ""); break;
    case 2: sum(n, DataType::kFloat32, odd ? ReduceOp::kMax : ReduceOp::kSum, ""); break;
    case 3: sum(n, DataType::kFloat32, ReduceOp::kSum, odd ? "step 8" : "step 9"); break;
    case 4: world.broadcast(x.data(), n, DataType::kFloat32, odd ? 0 : 1); break;
    case 5:  // another operation
      if (!odd) world.all_gather(x.data(), y.data(), n, DataType::kFloat32);
      break;
    case 6:  // two calls in another order
      if (odd) world.broadcast(x.data(), n, DataType::kFloat32, 0);
      sum(n, DataType::kFloat32, ReduceOp::kSum, "");
      if (!odd) world.broadcast(x.data(), n, DataType::kFloat32, 0);
      break;
    case 7: world.all_gather_v(x.data(), y.data(), counts, DataType::kFloat32); break;
    default: {  // a message of another size, to the next rank; the others go on to the next call
      const int next = (culprit + 1) % world.size();
      if (odd) world.send(x.data(), n + 1, DataType::kFloat32, next);
      if (world.rank() == next) world.recv(x.data(), n, DataType::kFloat32, culprit);
    }
  }
  sum(n, DataType::kFloat32, ReduceOp::kSum, "after");
  world.barrier();
}

// Makes the kernel refuse memory files from now on.
void forbid_memory_files() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    throw std::system_error(errno, std::generic_category(), "seccomp");
  }
}

// Joins the group like a rank of another build.
void pretend_another_version(const Self& self) {
  self.store->add(fmt::format("group/world/joined/{}", self.rank), 1);
  self.store->set(fmt::format("group/world/rank/{}", self.rank), "999999 host 1 1 1 1 1 1 1 1");
  self.store->get("never", Deadline::after(std::chrono::seconds(20)));
}

// Runs the row. Returns the text of the report.
std::string run_row(const Self& self) {
  const std::string& row = self.arguments.row;
  if (row == "no_memfd") forbid_memory_files();
  if (row == "version") {
    pretend_another_version(self);
    return "";
  }
  comm::GroupOptions options = self.group("world");
  const std::chrono::seconds time(self.arguments.seconds);
  if (time.count() > 0 && row != "work_for") options.join_timeout = time;
  auto owner = std::make_unique<Communicator>(options);
  Communicator& world = *owner;
  if (row == "mismatch") world.barrier();
  fmt::print("ready\n");
  std::fflush(stdout);
  if (row == "work" || row == "work_and_stay") work(world, self.arguments.seed);
  if (row == "mismatch") mismatch(world, self.arguments.seed);
  if (row == "end_early") {
    end_early(self, std::move(owner));
    return "";
  }
  if (row == "work_for") return fmt::format("{} calls", work_for(world, self.arguments.seed, time));
  double x = self.rank;
  const auto block = world.allocate(1 << 20);
  world.all_reduce(&x, &x, 1, DataType::kFloat64, ReduceOp::kSum);
  world.barrier();
  return "";
}

}  // namespace

int fault_command(const Self& self) {
  try {
    const std::string text = run_row(self);
    say({{"type", "none"}, {"code", 0}, {"text", text}});
    return 0;
  } catch (const Error& error) {
    const int code = static_cast<int>(error.exit_code());
    say({{"type", type_of(error)}, {"code", code}, {"text", error.what()}});
    if (self.arguments.row == "work_and_stay") std::this_thread::sleep_for(std::chrono::seconds(8));
    return code;
  } catch (const std::exception& error) {
    say({{"type", "std::exception"}, {"code", 70}, {"text", error.what()}});
    return 70;
  }
}

}  // namespace reigen::trial
