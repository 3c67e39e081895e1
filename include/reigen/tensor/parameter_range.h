// A flat range of parameters and its twin of gradients: what optimizers, checkpoints and hashes work on.
//
// `values` and `gradients` are one-dimensional, of one element type and of one layout: segment i holds one parameter at
// [offset, offset + numel) of both. Offsets are multiples of 64 bytes and every segment is followed by at least one
// spare element; what lies between segments is zero whenever no backward is running, so a pass over the whole range is
// harmless.
//
// A parameter's gradient is its `.grad`, as everywhere in LibTorch. It may be undefined (nothing reached the parameter:
// an optimizer leaves it alone), lie in the twin buffer (after a data-parallel backward all do), or be a tensor of its
// own (one rank alone, where a copy would buy nothing). gather_gradients() moves the last kind into the twin. Where
// backward makes gradients in spare blocks (Share) the twin is not flat any more: gradient_slot() tells where each
// lies.
//
// Ranks may divide a range between them (data_parallel's Shard): each changes its share of the values alone, and has
// the states of an optimizer for it alone. Where the values lie then is said by Values: in one memory of all ranks of a
// machine, which is changed between two meetings; whole on every rank, with an exchange behind every change; or nowhere
// whole but while somebody computes with them. Averaged gradients may be divided in the same way, and may lie where all
// ranks read them: then a rank averages its share of them itself, when it first needs it.
//
// A range is a handle: copies are the same memory, and it keeps the memory and the parameters alive.
// Thread rule: as for a tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

class SpareBlocks;
class TransientFlat;

// Elements that a pass over a parameter takes at a time: with an optimizer's states they stay in the second-level
// cache. Shares are cut between such blocks.
constexpr std::int64_t kBlockElements = 16384;

struct Segment {
  std::string name;                       // as the module names it: "conv1.weight"
  std::vector<std::string> aliases = {};  // further names of a tied parameter
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;  // in elements
  std::int64_t numel = 0;
  at::Tensor parameter;  // the module's own tensor, a view into `values`
};

// Where the values of a range are.
enum class Values {
  kOwn,        // here, whole, and nobody else's
  kCommon,     // in one memory of all ranks
  kExchanged,  // here, whole; behind a change ranks give each other their shares
  kGathered,   // here of this rank's share alone; of all while a copy is there (Share::whole)
};

// What of a range this rank may change: elements [begin, end) of the flat buffer. The shares of all ranks are disjoint
// and cover it.
struct Share {
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  std::optional<Communicator> ranks = {};  // who divide the range; none: this rank's own, all of it its share
  Values values = Values::kOwn;
  std::vector<std::int64_t> bounds = {};      // rank q's share is [bounds[q], bounds[q + 1])
  std::shared_ptr<TransientFlat> whole = {};  // kGathered: what the parameters are views of
  // Where backward's gradients lie until they are averaged. Then this rank has the mean of its share alone, in the
  // range's gradients(), of which no more takes memory. Null: they lie in gradients().
  std::shared_ptr<TransientFlat> made = {};
  at::Tensor gradients = {};  // row q begins with the twin of rank q, where each averages its share itself
  // Behind the twin in this rank's row: backward makes large gradients there, which then lie in another place than
  // their segment's. May be null.
  std::shared_ptr<SpareBlocks> spares = {};
  std::filesystem::path offload = {};  // a directory: twins are files there; empty: memory
};

// Elements [first, last) of a parameter, in row-major order.
struct Held {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

class ParameterRange {
 public:
  ParameterRange(at::Tensor values, at::Tensor gradients, std::vector<Segment> segments, Share share = {});

  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  const std::vector<Segment>& segments() const { return *segments_; }
  std::size_t size() const { return segments_->size(); }
  // Parameters' elements, spare ones not counted.
  std::int64_t numel() const;

  const Share& share() const { return *share_; }
  bool is_divided() const { return share_->ranks.has_value(); }
  bool is_common() const { return share_->values == Values::kCommon; }
  // Whether ranks have, or will have, the mean gradient of their shares alone.
  bool divides_averages() const { return share_->made != nullptr || share_->gradients.defined(); }
  // Elements of every rank's share, as calls with blocks of different sizes take them.
  std::vector<std::size_t> share_sizes() const;
  // What of a segment is in this rank's share; may be nothing.
  Held held(const Segment& segment) const;
  // What this rank may change of a buffer in the layout of `values`.
  at::Tensor own_part(const at::Tensor& flat) const;
  // Zeros in the layout of `values`. Where ranks divide these it is for own_part(): one memory of all ranks where the
  // values are, and the call is collective then; else only that part ever takes memory.
  at::Tensor make_twin(at::ScalarType type) const;
  // Common values: waits until every rank has come here. Else it does nothing. Throws as a barrier does.
  void meet(const char* what) const;
  // An exchange of the caller's between the ranks that divide the range; of a range that is not divided: nothing.
  void exchange(const std::function<void(Communicator& ranks)>& calls) const;
  // Behind a change of the own part: the other ranks see it. kCommon: it does, once all have met. kExchanged:
  // values[bounds[q], bounds[q+1]) = rank q's, (P-1)/P of the values sent and received. kGathered: a copy that is there
  // is dropped. Collective.
  void give_share(const char* what) const;
  // How long this rank has spent in the three.
  double seconds_met() const { return *seconds_met_; }
  // Whether the gradients are of this rank alone, and the mean over the ranks is still to be taken of its share.
  bool awaits_average() const { return *awaits_average_; }
  void set_awaits_average(bool awaits) const { *awaits_average_ = awaits; }
  // Where in its row the segment's gradient lies or would lie, in elements.
  std::int64_t gradient_place(std::size_t segment) const;
  // places[q · size() + i]: gradient_place(i) on rank q. What average() reads; before, every segment's own.
  void set_gradient_places(std::vector<std::int64_t> places) const;
  // mean[i] = mean over all ranks of element first + i of the segment's gradient, i < count, in this rank's share: the
  // bits of an all_reduce. Several threads may do so with different elements.
  void average_into(std::size_t segment, std::int64_t first, std::int64_t count, void* mean) const;
  // The same in place of this rank's gradient.
  void average(std::size_t segment, std::int64_t first, std::int64_t count) const;
  // Tells this rank that shared values have changed as they should. Every rank calls it, when all have met behind the
  // change: optimizers and averages of reigen::optim do, and so must all ranks where one changes them by hand. Else
  // is_as_left() may be false on those that did not: it looks at the first values of every parameter.
  void note_change() const;
  bool is_as_left() const;

  // True if the segment has a gradient.
  bool is_active(std::size_t segment) const;
  // Where the averaged gradient of the share is all that there is (Share::made), `.grad` is a stand-in that marks it:
  // NaN everywhere, without memory. keep_gradient() sets it; take_back() makes it undefined and tells whether it was
  // there.
  bool is_kept(std::size_t segment) const;
  void keep_gradient(std::size_t segment) const;
  bool take_back(std::size_t segment) const;
  // What the slots are views of.
  const at::Tensor& gradient_flat() const;
  // True if it has one and it lies in its slot.
  bool is_in_place(std::size_t segment) const;
  // The segment's place, with the parameter's shape. What it holds counts only when is_in_place().
  const at::Tensor& gradient_slot(std::size_t segment) const { return (*slots_)[segment]; }

  // Makes the segment's gradient lie in its slot: copies it there and rebinds `.grad`, so that the original dies;
  // nothing to do when it is there. One pass at most. Accepts any strides, sparse gradients and those with a graph
  // (which they lose). Throws InvalidArgument when the gradient's shape is not the parameter's.
  void gather_gradient(std::size_t segment) const;
  // The same for a gradient that comes out of a backward: one that was made in a spare block is not copied, the block
  // becomes the slot. Only between two exchanges of places (set_gradient_places).
  void take_gradient(std::size_t segment) const;
  void gather_gradients() const;  // of all active segments

  // `.grad` = undefined for every parameter: the next backward's gradient is taken over as it comes, nothing is zeroed.
  void drop_gradients() const;

 private:
  at::Tensor values_;
  at::Tensor gradients_;
  std::shared_ptr<const std::vector<Segment>> segments_;
  std::shared_ptr<std::vector<at::Tensor>> slots_;
  std::shared_ptr<const std::vector<at::Tensor>> marks_;  // of kept gradients
  std::shared_ptr<std::vector<std::int64_t>> places_;     // of all ranks
  std::shared_ptr<const Share> share_;
  std::shared_ptr<double> seconds_met_ = std::make_shared<double>(0);
  std::shared_ptr<bool> awaits_average_ = std::make_shared<bool>(false);
  std::shared_ptr<std::uint64_t> left_as_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace reigen::tensor

namespace reigen {
using tensor::ParameterRange;
}  // namespace reigen
