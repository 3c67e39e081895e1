// One call of a communicator with a known result: its memory and inputs, the call in one of several manners, and the
// comparison.
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

// The source of buffers: new buffers for every trial, or (`keeps`) always the same ones, which grow.
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
  // Takes memory from `supply` and writes the inputs.
  Trial(const Problem& problem, Communicator& world, Supply& supply);

  // Starts the calls of this problem.
  std::vector<Work> start(comm::Progress progress);
  // Makes the calls and waits for them, in the problem's manner.
  void run();
  // A text about the first wrong element. Also checks the inputs and the bytes around the buffers.
  std::optional<std::string> find_wrong() const;
  // Writes the inputs, and nonsense into the outputs, like the constructor.
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
  void add_recv(comm::CallList& calls) const;  // from the previous rank
  // The lists of calls, to be called one after the other.
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
