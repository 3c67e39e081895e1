// Says how the ranks among which a range of parameters is divided see each other's values. Each rank changes only its
// own share:
//
//   kind       where the values are       what publish() does after a change of the own share
//   own        on this rank; not sharded  nothing
//   common     in memory of all ranks     nothing: all ranks see it after meet()
//   exchanged  on this rank, whole        sends the share to all: (P-1)/P of the values are sent and received
//   gathered   on this rank: its share    drops gathered copies, which have the old values
//
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

class TransientFlat;

// The shares of a flat buffer: rank q of `ranks` has elements [bounds[q], bounds[q + 1]). They do not overlap, and
// cover the buffer.
struct Shares {
  Communicator ranks;
  std::vector<std::int64_t> bounds;

  std::int64_t begin() const { return bounds[static_cast<std::size_t>(ranks.rank())]; }
  std::int64_t end() const { return bounds[static_cast<std::size_t>(ranks.rank()) + 1]; }
  // The number of elements of every share, for calls with blocks of different sizes (NAME_v()).
  std::vector<std::size_t> sizes() const;
};

class RangeValues {
 public:
  explicit RangeValues(std::optional<Shares> shares) : shares_(std::move(shares)) {}
  virtual ~RangeValues() = default;
  RangeValues(const RangeValues&) = delete;  // each range has one, and copies of the range use the same
  RangeValues& operator=(const RangeValues&) = delete;

  const std::optional<Shares>& shares() const { return shares_; }  // not set: the range is not sharded
  virtual bool is_common() const { return false; }
  // The copy of all values that has memory only while it is gathered (transient_flat.h); null: there is no such copy.
  virtual TransientFlat* whole() const { return nullptr; }

  // Common values: waits until every rank has called it. Other values: does nothing. Throws as a barrier does. The
  // argument, here and in publish(), is the tag of the calls that the function makes: their errors contain it.
  virtual void meet(const char*) {}
  // Lets the other ranks see a change of this rank's share, as the table above says. Collective.
  virtual void publish(const char*) {}
  // Common values: tells this rank that the values were changed on purpose. is_unmodified() compares the first values
  // of every parameter with the values at the last note_change().
  virtual void note_change() {}
  virtual bool is_unmodified() const { return true; }

  // Runs `calls`, an exchange between the ranks that shard the range. Does nothing if the range is not sharded.
  void exchange(const std::function<void(const Communicator& ranks)>& calls);
  // How long this rank has spent in meet(), publish() and exchange().
  double seconds_met() const { return seconds_met_; }

 private:
  std::optional<Shares> shares_;
  double seconds_met_ = 0;
};

}  // namespace reigen::tensor
