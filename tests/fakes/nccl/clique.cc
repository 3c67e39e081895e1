#include "fakes/nccl/clique.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "comm/reduce/reduce.h"
#include "fakes/cuda/device.h"
#include "reigen/base/unique_fd.h"

namespace reigen::testing::stand_in {

namespace {

using comm::DataType;
using comm::ReduceOp;

DataType to_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return DataType::kInt8;
    case ncclUint8: return DataType::kUint8;
    case ncclInt32: return DataType::kInt32;
    case ncclInt64: return DataType::kInt64;
    case ncclFloat16: return DataType::kFloat16;
    case ncclBfloat16: return DataType::kBfloat16;
    case ncclFloat32: return DataType::kFloat32;
    case ncclFloat64: return DataType::kFloat64;
    default: die("a type that nobody needs");
  }
}

ReduceOp to_op(ncclRedOp_t op) {
  switch (op) {
    case ncclProd: return ReduceOp::kProd;
    case ncclMax: return ReduceOp::kMax;
    case ncclMin: return ReduceOp::kMin;
    case ncclAvg: return ReduceOp::kAvg;
    default: return ReduceOp::kSum;
  }
}

std::size_t input_count(const Task& task, const Member& member) {
  const bool is_root = task.peer == member.rank;
  if (task.kind == Kind::kReduceScatter) return task.count * static_cast<std::size_t>(member.clique->size);
  if (task.kind == Kind::kBroadcast) return is_root ? task.count : 0;
  return task.count;
}

std::size_t output_count(const Task& task, const Member& member) {
  const bool is_root = task.peer == member.rank;
  if (task.kind == Kind::kAllGather) return task.count * static_cast<std::size_t>(member.clique->size);
  if (task.kind == Kind::kReduce) return is_root ? task.count : 0;
  return task.count;
}

// A rank's part of a collective. The input is a copy, so that no rank reads another rank's memory.
struct Part {
  Task task;
  File file;  // the task, then the input
  const std::byte* input() const { return file.begin.get() + sizeof(Task); }
};

// Memory of the device.
Bytes bytes_of(const void* data, std::size_t count) { return count > 0 ? Bytes(reach(data), count) : Bytes(); }

bool is_same(const Task& a, const Task& b) {
  const auto op = [](const Task& task) { return std::min<int>(task.op, ncclNumOps); };
  return a.kind == b.kind && a.count == b.count && a.type == b.type && op(a) == op(b) && a.peer == b.peer;
}

// Reduces the elements of all ranks from `begin` on, beginning with the last rank.
void reduce(const std::vector<Part>& parts, std::size_t begin, const Task& task, std::byte* output) {
  std::vector<const std::byte*> inputs;
  std::vector<double> factors;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    inputs.push_back(part->input() + begin * size_of(task.type));
    factors.push_back(part->task.factor);
  }
  comm::reduce::run({.inputs = inputs.data(),
                     .outputs = &output,
                     .input_count = static_cast<int>(inputs.size()),
                     .output_count = 1,
                     .count = task.count,
                     .type = to_type(task.type),
                     .op = to_op(task.op),
                     .factors = task.op >= ncclNumOps ? factors.data() : nullptr});
}

void write_result(const std::vector<Part>& parts, const Task& task, const Member& member) {
  auto* const output = reach(task.output);
  const std::size_t bytes = task.count * size_of(task.type);
  switch (task.kind) {
    case Kind::kReduce:
      if (member.rank != task.peer) return;
      [[fallthrough]];
    case Kind::kAllReduce: return reduce(parts, 0, task, output);
    case Kind::kReduceScatter: return reduce(parts, static_cast<std::size_t>(member.rank) * task.count, task, output);
    case Kind::kBroadcast: std::memcpy(output, parts[static_cast<std::size_t>(task.peer)].input(), bytes); return;
    case Kind::kAllGather:
      for (std::size_t q = 0; q < parts.size(); ++q) std::memcpy(output + q * bytes, parts[q].input(), bytes);
      return;
    default: die("no collective");
  }
}

// Returns false if the member is aborted.
bool wait_until(Member& member, std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition) {
  member.clique->wait(lock, member.aborted, condition);
  return !member.aborted;
}

std::string part_name(std::uint64_t number, int rank) { return fmt::format("part.{}.{}", number, rank); }

// Returns the parts of all ranks, or nothing if not all are there.
std::optional<std::vector<Part>> parts_of(const Clique& clique, std::uint64_t number) {
  for (int rank = 0; rank < clique.size; ++rank) {
    if (!clique.has(part_name(number, rank))) return std::nullopt;
  }
  std::vector<Part> parts;
  for (int rank = 0; rank < clique.size; ++rank) {
    auto file = clique.get(part_name(number, rank));
    if (!file) return std::nullopt;
    Part& part = parts.emplace_back();
    std::memcpy(static_cast<void*>(&part.task), file->begin.get(), sizeof(Task));
    part.file = *std::move(file);
  }
  return parts;
}

bool run_collective(Member& member, const Task& task) {
  Clique& clique = *member.clique;
  const std::size_t input_bytes = input_count(task, member) * size_of(task.type);
  const std::size_t output_bytes = output_count(task, member) * size_of(task.type);
  if (input_bytes > 0) require_memory(task.input, input_bytes, member.device, "a collective's input");
  if (output_bytes > 0) require_memory(task.output, output_bytes, member.device, "a collective's output");
  const std::uint64_t number = member.collectives++;
  std::optional<std::vector<Part>> parts;
  {
    std::unique_lock lock(clique.mutex);
    if (member.aborted) return false;
    clique.put(part_name(number, member.rank), std::as_bytes(std::span(&task, 1)), bytes_of(task.input, input_bytes));
    int present = 0;  // of the first ranks, so that each look asks only for the next one
    const bool have_come = wait_until(member, lock, [&] {
      while (present < clique.size && clique.has(part_name(number, present))) ++present;
      if (present < clique.size) return false;
      parts = parts_of(clique, number);
      if (!parts) present = 0;
      return parts.has_value();
    });
    if (!have_come) {
      clique.remove(part_name(number, member.rank));  // from now on the others wait for this rank
      return false;
    }
    if (number > 0) clique.remove(part_name(number - 1, member.rank));
    for (const Part& other : *parts) {
      if (!is_same(other.task, task)) return wait_until(member, lock, [] { return false; });
    }
  }
  write_result(*parts, task, member);
  return true;
}

std::string letter_name(int from, int to, std::uint64_t number) {
  return fmt::format("letter.{}.{}.{}", from, to, number);
}

bool run_messages(Member& member, const std::vector<Task>& tasks) {
  Clique& clique = *member.clique;
  std::vector<std::string> sent;
  std::unique_lock lock(clique.mutex);
  if (member.aborted) return false;
  for (const Task& task : tasks) {
    const std::size_t bytes = task.count * size_of(task.type);
    const void* data = task.kind == Kind::kSend ? task.input : task.output;
    if (bytes > 0) require_memory(data, bytes, member.device, "a message");
    if (task.kind != Kind::kSend) continue;
    sent.push_back(letter_name(member.rank, task.peer, member.sent[task.peer]++));
    clique.put(sent.back(), {}, bytes_of(data, bytes));
  }
  bool is_done = true;
  for (const Task& task : tasks) {
    if (task.kind != Kind::kRecv || !is_done) continue;
    const std::string name = letter_name(task.peer, member.rank, member.received[task.peer]++);
    std::optional<File> letter;
    is_done = wait_until(member, lock, [&] {
      letter = clique.get(name);
      return letter.has_value();
    });
    if (!is_done) continue;
    const std::size_t bytes = task.count * size_of(task.type);
    if (letter->size != bytes) is_done = wait_until(member, lock, [] { return false; });
    if (is_done && bytes > 0) std::memcpy(reach(task.output), letter->begin.get(), bytes);
    if (is_done) clique.remove(name);
  }
  is_done = is_done && wait_until(member, lock, [&] {
              return std::none_of(sent.begin(), sent.end(), [&](const auto& name) { return clique.has(name); });
            });
  if (!is_done) {
    for (const std::string& name : sent) clique.remove(name);  // nobody receives from this rank any more
  }
  return is_done;
}

// Files of a disk take twice the time of files in memory.
std::filesystem::path place_of_files() {
  constexpr std::uintmax_t kEnough = 1 << 30;
  const std::filesystem::path memory = "/dev/shm";
  std::error_code error;
  const bool is_large = std::filesystem::space(memory, error).available >= kEnough && !error;
  return is_large && ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

File copy_of(Bytes head, Bytes body) {
  const std::shared_ptr<std::byte[]> bytes(new std::byte[head.size() + body.size()]);
  std::copy(head.begin(), head.end(), bytes.get());
  std::copy(body.begin(), body.end(), bytes.get() + head.size());
  return {.begin = {bytes, bytes.get()}, .size = head.size() + body.size()};
}

// Returns false if the file cannot be written.
bool write(const std::string& path, Bytes head, Bytes body) {
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!file) return false;
  for (Bytes rest : {head, body}) {
    while (!rest.empty()) {
      const ssize_t written = ::write(file.get(), rest.data(), rest.size());
      if (written <= 0) return false;
      rest = rest.subspan(static_cast<std::size_t>(written));
    }
  }
  return true;
}

// Returns nothing if there is no such file.
std::optional<File> map(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return std::nullopt;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return File();
  void* const begin = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (begin == MAP_FAILED) die("a file of a communicator could not be mapped");
  const auto unmap = [size](const std::byte* at) { ::munmap(const_cast<std::byte*>(at), size); };
  return File{.begin = {static_cast<const std::byte*>(begin), unmap}, .size = size};
}

constexpr const char* kFolders = "nccl_stand_in.";

// Ranks that were killed leave folders.
void remove_old_folders() {
  std::error_code none;
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const auto& entry : std::filesystem::directory_iterator(place_of_files(), none)) {
    const bool is_old = now - entry.last_write_time(none) > std::chrono::hours(1);
    if (is_old && entry.path().filename().string().starts_with(kFolders)) std::filesystem::remove_all(entry, none);
  }
}

}  // namespace

std::string Clique::make_folder() {
  static std::mutex mutex;
  static auto* const made = new std::vector<std::string>;  // used at the end of the process
  std::string folder = (place_of_files() / (std::string(kFolders) + "XXXXXX")).string();
  if (::mkdtemp(folder.data()) == nullptr) die("no folder for a communicator");
  const std::lock_guard lock(mutex);
  if (made->empty()) {
    remove_old_folders();
    std::atexit([] {
      std::error_code none;
      for (const std::string& one : *made) std::filesystem::remove_all(one, none);
    });
  }
  made->push_back(folder);
  return folder;
}

bool Clique::join(int rank, int device) {
  const int place =
      ::open(path(fmt::format("device.{}", device)).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (place < 0) return false;
  ::close(place);
  put(fmt::format("joined.{}", rank), {}, {});
  joined_here_ += 1;
  return true;
}

void Clique::leave(int rank) {
  put(fmt::format("gone.{}", rank), {}, {});
  std::error_code none;
  if (gone() == size) std::filesystem::remove_all(folder_, none);
  changed.notify_all();
}

// A folder that is removed means that all ranks are gone.
int Clique::gone() const { return is_in_memory() || std::filesystem::exists(folder_) ? count("gone.") : size; }

void Clique::put(const std::string& name, Bytes head, Bytes body) {
  if (is_in_memory()) {
    in_memory_[name] = copy_of(head, body);
    return changed.notify_all();
  }
  static std::atomic<std::uint64_t> number{0};
  const std::string draft = path(fmt::format("draft.{}.{}", ::getpid(), number++));
  const bool is_whole = write(draft, head, body);
  if (!is_whole && std::filesystem::exists(folder_)) die("a file of a communicator could not be written");
  std::error_code none;  // the folder is gone if all ranks are
  std::filesystem::rename(draft, path(name), none);
  changed.notify_all();
}

std::optional<File> Clique::get(const std::string& name) const {
  if (!is_in_memory()) return map(path(name));
  const auto found = in_memory_.find(name);
  return found == in_memory_.end() ? std::nullopt : std::optional(found->second);
}

bool Clique::has(const std::string& name) const {
  return is_in_memory() ? in_memory_.contains(name) : ::access(path(name).c_str(), F_OK) == 0;
}

void Clique::remove(const std::string& name) {
  if (in_memory_.erase(name) == 0) ::unlink(path(name).c_str());
  changed.notify_all();
}

void Clique::wait(std::unique_lock<std::mutex>& lock, const bool& stop, const std::function<bool()>& condition) {
  std::chrono::microseconds patience(50);
  if (is_in_memory()) return changed.wait(lock, [&] { return stop || condition(); });
  while (!stop && !condition()) {
    if (changed.wait_for(lock, patience) == std::cv_status::no_timeout)
      patience = std::chrono::microseconds(50);
    else
      patience = std::min(2 * patience, std::chrono::microseconds(1000));
  }
}

int Clique::count(const char* prefix) const {
  int found = 0;
  for (int rank = 0; rank < size; ++rank) found += has(prefix + std::to_string(rank)) ? 1 : 0;
  return found;
}

std::size_t size_of(ncclDataType_t type) { return comm::size_of(to_type(type)); }

void run(Member& member, const std::vector<Task>& tasks) {
  std::vector<Task> messages;
  for (const Task& task : tasks) {
    if (task.kind == Kind::kSend || task.kind == Kind::kRecv) {
      messages.push_back(task);
    } else if (!run_collective(member, task)) {
      return;
    }
  }
  if (!messages.empty()) run_messages(member, messages);
}

}  // namespace reigen::testing::stand_in
