// Runs the body of a test on several ranks: threads of this process, or processes.
//
//   run_ranks({.ranks = 4, .kind = RankKind::kProcesses, .fault = kill(rank(2)).at_step(3)}, [](Rank& r) {
//     r.step(3);
//     EXPECT_THROW(r.world().barrier(), PeerLost);
//   });
//
// For processes, posix_spawn (or mpirun, which posix_spawn starts) runs this same test program with a filter for the
// running test. There run_ranks finds its rank in the environment, runs the body and exits. So every rank also executes
// the code of the test before run_ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/faults.h"
#include "reigen/comm/communicator.h"

namespace reigen::testing {

enum class RankKind { kThreads, kProcesses, kMpi };  // kMpi: processes that mpirun starts; all have one RankEnd

struct RankOptions {
  int ranks = 2;
  RankKind kind = RankKind::kThreads;
  Fault fault = {};
  std::string backend = "auto";
  const comm::BackendEntry* engine = nullptr;
  Device device = {};
  // Rank r is on machine r % machines, or on machine r / ranks_a_machine (neighbours together). 0: all are on this one,
  // but hierarchical groups then have two neighbours on each machine.
  int machines = 0;
  int ranks_a_machine = 0;
  std::string network = "tcp";  // between machines
  std::string algorithms = {};
  void (*prepare)(int rank) = nullptr;  // every rank calls it first, as a process or a thread
  int segments = 0;
  int connections = 1;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // limit of a collective
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds report_after = std::chrono::seconds(30);
  std::chrono::seconds limit =
      std::chrono::seconds(90);  // limit of the whole run; after it, all ranks are killed and the test fails
};

class Rank {
 public:
  Rank(int rank, const RankOptions& options, std::shared_ptr<store::Store> store);
  int rank() const { return rank_; }
  int size() const { return options_.ranks; }
  // The group of all ranks. The first call forms it.
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

// Returns when all ranks have made this call, which only the store sees. A rank may be inside a barrier still after
// another has left it; so an abort behind a barrier may reach it there. Behind this call all ranks have left.
void meet(Rank& r, const std::string& where);

using RankBody = std::function<void(Rank&)>;

// How a rank ended. For threads, exit_code is 0, or 1 with the exception's text as output.
struct RankEnd {
  int exit_code = 0;
  int signal = 0;
  std::string output;
};

// Fails the test if a rank without a fault did not end with success.
std::vector<RankEnd> run_ranks(const RankOptions& options, const RankBody& body);

}  // namespace reigen::testing
