// Runs the body of a test on several ranks: threads of this process, or processes.
//
//   run_ranks({.ranks = 4, .kind = RankKind::kProcesses, .fault = kill(rank(2)).at_step(3)}, [](Rank& r) {
//     r.step(3);
//     EXPECT_THROW(r.world().barrier(), PeerLost);
//   });
//
// Processes are started by posix_spawn (or by mpirun, itself started so) as this same test program with a filter for
// the running test; there run_ranks finds its rank in the environment, runs the body and exits. What the test does
// before run_ranks is therefore done in every rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/faults.h"
#include "reigen/comm/communicator.h"

namespace reigen::testing {

enum class RankKind { kThreads, kProcesses, kMpi };  // kMpi: processes that mpirun starts; one end for all of them

struct RankOptions {
  int ranks = 2;
  RankKind kind = RankKind::kThreads;
  Fault fault = {};
  std::string backend = "auto";
  const comm::BackendEntry* engine = nullptr;
  Device device = {};
  // Rank r is on machine r % machines, or, with neighbours together, on machine r / ranks_a_machine; 0: on this one.
  int machines = 0;
  int ranks_a_machine = 0;
  std::string algorithms = {};
  void (*prepare)(int rank) = nullptr;  // called first by every rank, which may be a thread
  int segments = 0;
  int connections = 1;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of a collective
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds report_after = std::chrono::seconds(30);
  std::chrono::seconds limit =
      std::chrono::seconds(90);  // of the whole run; then everything is killed and the test fails
};

class Rank {
 public:
  Rank(int rank, const RankOptions& options, std::shared_ptr<store::Store> store);
  int rank() const { return rank_; }
  int size() const { return options_.ranks; }
  // The group of all ranks, made at the first call.
  Communicator& world();
  Communicator make_group(const std::string& name);
  void leave() { world_.reset(); }
  store::Store& store() { return *store_; }
  // The fault planned for this rank and step happens here.
  void step(int number) const;

 private:
  int rank_;
  RankOptions options_;
  std::shared_ptr<store::Store> store_;
  std::unique_ptr<Communicator> world_;
};

using RankBody = std::function<void(Rank&)>;

// How a rank ended. Threads: exit_code 0, or 1 with the exception's text as output.
struct RankEnd {
  int exit_code = 0;
  int signal = 0;
  std::string output;
};

// Fails the test when a rank other than the one with a fault did not end well.
std::vector<RankEnd> run_ranks(const RankOptions& options, const RankBody& body);

}  // namespace reigen::testing
