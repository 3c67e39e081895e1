// For a machine with a GPU: do calls on device memory give the same results as on host memory, and how fast are they?
//
//   check_group --threads N         N ranks as threads of this process
//   reigen run -n N check_group     N processes
// Words after either command:
//   --speed          only measures times
//   --calls N        makes N random calls
//   --most MIB       measures all_reduce up to this size
// Words for processes:
//   --for-ever       makes calls until something ends the job
//   --fault KIND     the same, and after two seconds rank 1 (--rank R: another one) does something wrong:
//     exception      it throws an exception that is not an Error
//     mismatch       it makes a call with another number of elements
//     kernel         its next call comes after a kernel that writes to an address that is nobody's
//     endless        its next call comes after a kernel that never ends
//
// The program makes every reduction of every type, then random calls on three streams. It makes each call on device
// memory and, over shared memory, on host memory, and compares the results bit for bit. Then it measures all_reduce
// and, for comparison, a copy within the device. Ranks may share a GPU. The exit code is 1 if any result differs, and
// 69 if there is no GPU.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "device/cuda.h"
#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"
#include "reigen/runtime/init.h"

namespace reigen {
namespace {

using comm::DataType;
using comm::ReduceOp;
using Bytes = std::vector<std::byte>;

constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUint8,   DataType::kInt16,    DataType::kInt32,
                               DataType::kInt64,   DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                               DataType::kFloat64, DataType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProd, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kBor,  ReduceOp::kBxor};
constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Random elements near one, so that no reduction gives NaN.
template <typename Random>
Bytes values(DataType type, std::size_t count, Random& random) {
  Bytes bytes(count * comm::size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const at = bytes.data() + i * comm::size_of(type);
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    const std::uint64_t bits = random();
    const float value = 0.5F + static_cast<float>(bits % 1'000'003) / 1'000'003.0F;
    switch (type) {
      case DataType::kFloat64: put(static_cast<double>(value) + static_cast<double>(bits) * 1e-30); break;
      case DataType::kFloat32: put(value); break;
      case DataType::kBfloat16: put(static_cast<std::uint16_t>(0x3f00 + bits % 0x100)); break;
      case DataType::kFloat16: put(static_cast<std::uint16_t>(0x3800 + bits % 0x800)); break;
      default: std::memcpy(at, &bits, comm::size_of(type));
    }
  }
  return bytes;
}

// Device memory: allocated by the group, or by the program (foreign), so that other ranks cannot reach it.
std::shared_ptr<void> on_device(const Communicator& world, std::size_t bytes, bool foreign) {
  return foreign ? device::allocate(world.device().index, bytes) : world.allocate(bytes, world.device());
}

class Checker {
 public:
  explicit Checker(const Communicator& world) : world_(world) {}

  std::size_t cases() const { return cases_; }
  std::size_t differences() const { return differences_; }

  void compare(const void* device, const Bytes& host, const std::string& what) {
    Bytes found(host.size());
    device::copy(found.data(), device, found.size());
    cases_ += 1;
    if (std::memcmp(found.data(), host.data(), host.size()) == 0) return;
    differences_ += 1;
    if (differences_ <= 5) fmt::print(stderr, "rank {}: {} differs\n", world_.rank(), what);
  }

  void all_reductions() {
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (!comm::is_defined(op, type)) continue;
        for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{65'537}}) {
          for (const bool foreign : {false, true}) reduction(type, op, count, foreign);
        }
        if (type == DataType::kFloat32 || type == DataType::kBfloat16) reduction(type, op, 5'000'003, true);
      }
    }
  }

  // Up to four calls are in progress at a time. Each begins after the copy of its input on its stream.
  void random_calls(int calls) {
    std::mt19937_64 same(7);  // for choices that are equal on all ranks
    std::mt19937_64 own(static_cast<std::uint64_t>(world_.rank()) + 100);
    const int index = world_.device().index;
    std::vector<std::unique_ptr<device::OwnStream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<device::OwnStream>(index));
    for (int begun = 0; begun < calls;) {
      struct One {
        Work work;
        std::shared_ptr<void> memory;
        std::size_t at = 0;
        Bytes expected;
        std::string what;
      };
      std::vector<One> batch;
      const std::size_t under_way = 1 + same() % 4;
      for (std::size_t k = 0; k < under_way; ++k, ++begun)
        batch.push_back(begin_one<One>(same, own, *streams[static_cast<std::size_t>(begun) % 3]));
      // For every other call a stream waits for the result and copies it to the host, and the host does not wait.
      std::vector<std::shared_ptr<void>> read(batch.size());
      for (std::size_t k = 0; k < batch.size(); ++k) {
        One& one = batch[k];
        if (k % 2 == 0) {
          one.work.wait();
        } else {
          read[k] = read_behind(one.work, static_cast<std::byte*>(one.memory.get()) + one.at, one.expected.size(),
                                *streams.back());
        }
      }
      const device::OnDevice on(index);
      device::check(device::cuda_runtime().stream_synchronize(streams.back()->get()), "cudaStreamSynchronize");
      for (std::size_t k = 0; k < batch.size(); ++k) {
        const One& one = batch[k];
        const void* const found = read[k] ? read[k].get() : static_cast<std::byte*>(one.memory.get()) + one.at;
        compare(found, one.expected, one.what + (read[k] ? ", behind a stream" : ""));
      }
    }
  }

 private:
  void reduction(DataType type, ReduceOp op, std::size_t count, bool foreign) {
    std::mt19937_64 random(static_cast<std::uint64_t>(world_.rank()) * 1000 + count);
    Bytes host = values(type, count, random);
    const auto device = on_device(world_, host.size(), foreign);
    device::copy(device.get(), host.data(), host.size());
    world_.all_reduce(device.get(), device.get(), count, type, op);
    world_.all_reduce(host.data(), host.data(), count, type, op);
    compare(device.get(), host,
            fmt::format("{} of {} {}{}", comm::name_of(op), count, comm::name_of(type), foreign ? ", foreign" : ""));
  }

  // Makes the stream copy the result to host memory when the call is done. Returns this memory.
  std::shared_ptr<void> read_behind(const Work& work, const std::byte* result, std::size_t bytes,
                                    const device::OwnStream& stream) const {
    const auto place = device::allocate_pinned(std::max<std::size_t>(bytes, 1));
    work.wait_on({world_.device(), stream.get()});
    const device::OnDevice on(world_.device().index);
    device::check(
        device::cuda_runtime().memcpy_async(place.get(), result, bytes, device::kCudaDeviceToHost, stream.get()),
        "cudaMemcpyAsync");
    return place;
  }

  struct Buffers {
    std::byte* from;
    std::byte* to;
    std::size_t count;
    DataType type;
    int root;
  };

  // Starts the call on the device, and makes the same call on the host, from `input` to `expected`.
  Work start(std::uint64_t kind, const Buffers& on, const comm::StartOptions& after, const Bytes& input,
             Bytes& expected, std::string& what) {
    const std::size_t block = on.count * comm::size_of(on.type);
    Work work;
    switch (kind) {
      case 0:
      case 1:
        work = world_.start_all_reduce(on.from, on.to, on.count, on.type, ReduceOp::kSum, after);
        world_.all_reduce(input.data(), expected.data(), on.count, on.type, ReduceOp::kSum);
        expected.resize(block);
        what = "all_reduce";
        break;
      case 2:
        work = world_.start_reduce_scatter(on.from, on.to, on.count, on.type, ReduceOp::kAvg, after);
        world_.reduce_scatter(input.data(), expected.data(), on.count, on.type, ReduceOp::kAvg);
        expected.resize(block);
        what = "reduce_scatter";
        break;
      case 3:
        work = world_.start_all_gather(on.from, on.to, on.count, on.type, after);
        world_.all_gather(input.data(), expected.data(), on.count, on.type);
        what = "all_gather";
        break;
      case 4:
        work = world_.start_all_to_all(on.from, on.to, on.count, on.type, after);
        world_.all_to_all(input.data(), expected.data(), on.count, on.type);
        what = "all_to_all";
        break;
      case 5:
        expected = input;
        expected.resize(block);
        work = world_.start_broadcast(on.from, on.count, on.type, on.root, after);
        world_.broadcast(expected.data(), on.count, on.type, on.root);
        what = "broadcast";
        break;
      case 6:
        work = world_.start_scatter(on.from, on.to, on.count, on.type, on.root, after);
        world_.scatter(input.data(), expected.data(), on.count, on.type, on.root);
        expected.resize(block);
        what = "scatter";
        break;
      default:
        work = world_.start_gather(on.from, on.to, on.count, on.type, on.root, after);
        world_.gather(input.data(), expected.data(), on.count, on.type, on.root);
        if (world_.rank() != on.root) expected.clear();
        what = "gather";
        break;
    }
    return work;
  }

  template <typename One, typename Random>
  One begin_one(Random& same, Random& own, const device::OwnStream& stream) {
    const auto p = static_cast<std::size_t>(world_.size());
    const std::size_t count = 1 + same() % 40'000;
    const bool foreign = same() % 4 == 0;
    const int root = static_cast<int>(same() % p);
    const auto kind = same() % 8;
    const DataType type = same() % 2 == 0 ? DataType::kFloat32 : DataType::kBfloat16;
    const std::size_t block = count * comm::size_of(type);
    const Bytes input = values(type, count * p, own);
    Bytes expected(block * p, std::byte{0});
    // The input is in the first half of the memory, the output in the second half.
    const auto memory = on_device(world_, 2 * block * p, foreign);
    auto* const from = static_cast<std::byte*>(memory.get());
    auto* const to = from + block * p;
    const auto pinned = device::allocate_pinned(input.size());
    std::memcpy(pinned.get(), input.data(), input.size());
    const device::OnDevice on(world_.device().index);
    device::check(
        device::cuda_runtime().memcpy_async(from, pinned.get(), input.size(), device::kCudaHostToDevice, stream.get()),
        "cudaMemcpyAsync");
    const comm::StartOptions after{.after = {world_.device(), stream.get()}};
    One one;
    one.memory = std::shared_ptr<void>(from, [memory, pinned](void*) {});
    one.at = block * p;
    one.work = start(kind, {.from = from, .to = to, .count = count, .type = type, .root = root}, after, input, expected,
                     one.what);
    if (kind == 5) one.at = 0;  // a broadcast changes its input
    one.what = fmt::format("{} of {} {}{}", one.what, count, comm::name_of(type), foreign ? ", foreign" : "");
    one.expected = std::move(expected);
    return one;
  }

  const Communicator& world_;
  std::size_t cases_ = 0;
  std::size_t differences_ = 0;
};

// What the command line asks for.
struct Words {
  int threads = 0;  // 0 means that the ranks are processes
  bool speed_only = false;
  int calls = 0;  // 0 means the usual number of random calls
  int most = 256;
  bool for_ever = false;
  std::string fault = {};
  int faulty = 1;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Bytes that a copy of 256 MiB within the device reads and writes in a second.
double copy_bytes_per_second(int index) {
  constexpr std::size_t kBytes = 256 * kMebibyte;
  const auto from = device::allocate(index, kBytes);
  const auto to = device::allocate(index, kBytes);
  const device::OnDevice on(index);
  const device::OwnStream stream(index);
  double least = 1e9;
  for (int i = 0; i < 20; ++i) {
    const double begin = now();
    device::check(
        device::cuda_runtime().memcpy_async(to.get(), from.get(), kBytes, device::kCudaDeviceToDevice, stream.get()),
        "cudaMemcpyAsync");
    device::check(device::cuda_runtime().stream_synchronize(stream.get()), "cudaStreamSynchronize");
    least = std::min(least, now() - begin);
  }
  return 2.0 * kBytes / least;
}

// The median over 20 calls of the slowest rank's time.
double time_all_reduce(const Communicator& world, std::size_t bytes) {
  const auto input = world.allocate(bytes, world.device());
  const auto output = world.allocate(bytes, world.device());
  const std::size_t count = bytes / sizeof(float);
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    world.barrier();
    const double begin = now();
    world.all_reduce(input.get(), output.get(), count, DataType::kFloat32, ReduceOp::kSum);
    double taken = now() - begin;
    world.all_reduce(&taken, &taken, 1, DataType::kFloat64, ReduceOp::kMax);
    if (i >= 5) times.push_back(taken);
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

bool check(const Communicator& world, const std::string& kind, const Words& words) {
  if (world.device().is_cpu()) throw BackendError("the group carries no device's memory");
  Checker checker(world);
  if (!words.speed_only) {
    checker.all_reductions();
    checker.random_calls(words.calls > 0 ? words.calls : world.size() > 1 ? 800 : 100);
  }
  std::int64_t counted[2] = {static_cast<std::int64_t>(checker.cases()),
                             static_cast<std::int64_t>(checker.differences())};
  world.all_reduce(counted, counted, 2, DataType::kInt64, ReduceOp::kSum);
  const double copy = world.rank() == 0 ? copy_bytes_per_second(world.device().index) : 0;
  world.barrier();
  if (world.rank() == 0) {
    fmt::print("{} ranks, {}, {}: {} results, {} differ from the host's\n", world.size(), kind, world.device_backend(),
               counted[0], counted[1]);
    fmt::print("| all_reduce | us | GB/s read and written | of a copy's {:.0f} GB/s |\n|---|---|---|---|\n",
               copy / 1e9);
  }
  for (const std::size_t mebibytes : std::initializer_list<std::size_t>{0, 1, 8, 16, 32, 64, 128, 256}) {
    if (mebibytes > static_cast<std::size_t>(words.most)) break;
    const std::size_t bytes = std::max<std::size_t>(1024, mebibytes * kMebibyte);
    const double seconds = time_all_reduce(world, bytes);
    const double moved = 2.0 * static_cast<double>(bytes) * world.size() / seconds;
    if (world.rank() == 0) {
      fmt::print("| {} | {:.1f} | {:.0f} | {:.2f} |\n",
                 bytes < kMebibyte ? fmt::format("{} B", bytes) : fmt::format("{} MiB", bytes / kMebibyte),
                 1e6 * seconds, moved / 1e9, moved / copy);
    }
  }
  std::fflush(stdout);
  return counted[1] == 0;
}

// Starts a kernel of libreigen_cuda_faults.so on the stream.
void start_faulty_kernel(const char* name, const device::OwnStream& stream) {
  void* const library = ::dlopen("libreigen_cuda_faults.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto start = reinterpret_cast<int (*)(void*)>(::dlsym(library, name));
  if (start == nullptr) throw std::runtime_error(fmt::format("libreigen_cuda_faults.so has no {}", name));
  device::check(start(stream.get()), name);
}

// Does what --fault says, in this rank.
void do_wrong(const Communicator& world, const std::string& fault, void* memory, std::size_t count) {
  fmt::print("rank {} does it now: {}\n", world.rank(), fault);
  std::fflush(stdout);
  if (fault == "exception") throw std::runtime_error("an exception for a test");
  if (fault == "mismatch") return world.all_reduce(memory, memory, count - 1, DataType::kFloat32, ReduceOp::kSum);
  const device::OnDevice on(world.device().index);
  const device::OwnStream stream(world.device().index);
  start_faulty_kernel(fault == "kernel" ? "reigen_cuda_faults_kernel" : "reigen_cuda_faults_endless", stream);
  world
      .start_all_reduce(memory, memory, count, DataType::kFloat32, ReduceOp::kSum,
                        {.after = {world.device(), stream.get()}})
      .wait();
}

// Makes calls until somebody ends the process. For tests of faults, such as a killed rank.
[[noreturn]] void call_for_ever(const Communicator& world, const Words& words) {
  fmt::print("rank {} is process {}\n", world.rank(), ::getpid());
  std::fflush(stdout);
  constexpr double kSecondsBefore = 2;
  constexpr std::size_t kCount = 4 * kMebibyte;
  const auto memory = world.allocate(kCount * sizeof(float), world.device());
  const double begin = now();
  bool is_wrong = !words.fault.empty() && world.rank() == words.faulty;
  for (;;) {
    if (is_wrong && now() - begin > kSecondsBefore) {
      is_wrong = false;
      do_wrong(world, words.fault, memory.get(), kCount);
    }
    world.all_reduce(memory.get(), memory.get(), kCount, DataType::kFloat32, ReduceOp::kSum);
  }
}

[[noreturn]] void refuse(const std::string& word) {
  throw InvalidArgument(
      fmt::format("wrong word or value: {}; usage: check_group [--threads N] [--speed | --for-ever | --fault "
                  "exception|mismatch|kernel|endless [--rank R]] [--calls N] [--most MIB]",
                  word),
      ExitCode::kUsage);
}

Words read_words(const std::vector<std::string>& given) {
  Words words;
  const std::pair<const char*, int*> numbers[] = {
      {"--threads", &words.threads}, {"--calls", &words.calls}, {"--most", &words.most}, {"--rank", &words.faulty}};
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string& word = given[i];
    if (word == "--speed") {
      words.speed_only = true;
      continue;
    }
    if (word == "--for-ever") {
      words.for_ever = true;
      continue;
    }
    if (i + 1 == given.size()) refuse(word);
    const std::string& value = given[++i];
    if (word == "--fault") {
      const auto kinds = {"exception", "mismatch", "kernel", "endless"};
      if (std::find(kinds.begin(), kinds.end(), value) == kinds.end()) refuse(value);
      words.fault = value;
      words.for_ever = true;
      continue;
    }
    const auto number =
        std::find_if(std::begin(numbers), std::end(numbers), [&](const auto& one) { return word == one.first; });
    const auto parsed = base::parse<int>(value);
    if (number == std::end(numbers) || !parsed || *parsed < 0) refuse(word + " " + value);
    *number->second = *parsed;
  }
  if (words.threads > 0 && words.for_ever) refuse("--threads with --for-ever or --fault");
  return words;
}

int run(const Words& words) {
  const InitOptions options{.device = Device::cuda()};
  if (words.threads > 0) {
    std::atomic<bool> right{true};
    run_threads(
        words.threads,
        [&](Communicator& world) {
          if (!check(world, "threads", words)) right.store(false);
        },
        options);
    return right.load() ? 0 : 1;
  }
  const Communicator world = init(options);
  if (words.for_ever) call_for_ever(world, words);
  return check(world, "processes", words) ? 0 : 1;
}

}  // namespace
}  // namespace reigen

int main(int argc, char** argv) {
  try {
    return reigen::run(reigen::read_words({argv + 1, argv + argc}));
  } catch (const reigen::Error& error) {
    fmt::print(stderr, "check_group: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
