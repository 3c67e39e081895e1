// The ranks of one communicator of the stand-in, and how their kernels exchange data.
//
// All that ranks tell each other is in files of one folder, so ranks may be threads or processes. A file is written
// under another name and then renamed, so it appears whole. If all ranks are threads of this process, the files are in
// memory, which takes a tenth of the time. The files:
//   device.D        a rank has joined with device D
//   joined.R        rank R has joined
//   gone.R          rank R is finalized or aborted
//   part.N.R        rank R's part of collective N: a Task, then the input
//   letter.F.T.K    message K from rank F to rank T; the receiver removes it
// When all parts of collective N are there, every rank is done with collective N - 1, so each removes its part of it.
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace reigen::testing::stand_in {

enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kRecv };

struct Task {
  Kind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  double factor = 1;  // the factor of `op`, if the user made `op`
  int peer = 0;       // the root of a collective, the other rank of a message
};

std::size_t size_of(ncclDataType_t type);

using Bytes = std::span<const std::byte>;

// What a file holds: memory of this process, or the mapped file. It stays readable when the file is removed.
struct File {
  std::shared_ptr<const std::byte> begin;
  std::size_t size = 0;
};

class Clique {
 public:
  Clique(std::string folder, int ranks) : size(ranks), folder_(std::move(folder)) {}

  // Makes a folder for a new communicator. The process removes it at its end, if the ranks have not done so before.
  static std::string make_folder();

  bool join(int rank, int device);  // false: another rank has joined with this device
  void leave(int rank);             // the last rank that leaves removes the folder
  int joined() const { return is_in_memory() ? size : count("joined."); }
  int gone() const;

  void put(const std::string& name, Bytes head, Bytes body);
  std::optional<File> get(const std::string& name) const;
  bool has(const std::string& name) const;
  void remove(const std::string& name);

  // Waits until `condition` holds or `stop` is true; `lock` holds `mutex`. Threads of this process are woken by put()
  // and remove(). A file of another process is seen after at most a millisecond.
  void wait(std::unique_lock<std::mutex>& lock, const bool& stop, const std::function<bool()>& condition);

  const int size;
  std::mutex mutex;  // the caller of every function holds it; it also guards Member::aborted
  std::condition_variable changed;

 private:
  bool is_in_memory() const { return joined_here_ == size; }
  int count(const char* prefix) const;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
  int joined_here_ = 0;  // ranks of this process
  std::map<std::string, File> in_memory_;
};

// One rank of a clique, as its kernels see it.
struct Member {
  std::shared_ptr<Clique> clique;
  int rank;
  int device;
  bool aborted = false;                        // guarded by the clique's mutex
  std::uint64_t collectives = 0;               // number so far; only the stream's thread uses it
  std::map<int, std::uint64_t> sent = {};      // messages so far, by receiver; likewise
  std::map<int, std::uint64_t> received = {};  // messages so far, by sender; likewise
};

// Runs a kernel: collectives one after the other, all messages together. Returns early if the member is aborted.
void run(Member& member, const std::vector<Task>& tasks);

}  // namespace reigen::testing::stand_in
