// One call of a communicator with a known answer: memory, inputs, the call in one of several manners, the comparison.
// Thread rule: the communicator's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/comm/call_list.h"
#include "reigen/comm/communicator.h"
#include "trial/values.h"

namespace reigen::trial {

// Where buffers come from: new ones for every trial, or always the same that grow.
class Supply {
 public:
  Supply(Communicator& world, bool keeps) : world_(world), keeps_(keeps) {}
  std::shared_ptr<void> take(std::size_t bytes, bool foreign, int slot);

 private:
  struct Kept {
    std::shared_ptr<void> block;
    std::size_t bytes = 0;
  };
  Communicator& world_;
  bool keeps_;
  std::map<std::pair<bool, int>, Kept> kept_;
};

class Trial {
 public:
  // Memory from `supply`, inputs written.
  Trial(const Problem& problem, Communicator& world, Supply& supply);

  // The calls of this problem, each with these options.
  std::vector<Work> start(comm::Progress progress);
  // Calls and waits in the problem's manner.
  void run();
  // The first element that is not as it must be, in words. Input and surroundings are looked at too.
  std::optional<std::string> find_wrong() const;
  // Writes the inputs and nonsense where the outputs go, as the constructor did.
  void fill();
  std::byte* output() const { return output_; }

 private:
  struct Region {
    std::shared_ptr<void> block;
    std::byte* data = nullptr;
    std::vector<Block> before;
    std::vector<Block> after;
  };

  void add_region(std::vector<Block> before, std::vector<Block> after, Supply& supply);
  void place(Supply& supply);
  comm::CallList call() const;
  comm::CallList call_uneven() const;
  void add_send(comm::CallList& calls) const;  // to the next rank
  void add_recv(comm::CallList& calls) const;  // from the one before
  // What is to be called, one list after the other.
  std::vector<comm::CallList> calls() const;
  comm::CallList calls_together() const;
  std::optional<std::string> find_wrong(const Region& region, const Block& block, std::size_t begin) const;

  Problem problem_;
  Communicator& world_;
  int ranks_;
  int rank_;
  std::size_t element_;
  bool foreign_;
  std::vector<Region> regions_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace reigen::trial
