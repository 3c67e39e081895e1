#include "comm/hierarchical/plan.h"

#include <cstring>
#include <numeric>

#include "comm/reduce/reduce.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::hierarchical {

namespace {

using Counts = std::vector<std::size_t>;

class Planner {
 public:
  Planner(const Call& call, const Layout& layout, const std::string& tag, const Scratch& scratch)
      : call_(call),
        layout_(layout),
        tag_(tag),
        scratch_(scratch),
        element_(size_of(call.type)),
        size_(static_cast<int>(layout.order.size())),
        op_(call.op == ReduceOp::kAvg ? ReduceOp::kSum : call.op),
        input_(static_cast<const std::byte*>(call.input)),
        output_(static_cast<std::byte*>(call.output)) {}

  std::vector<Stage> make() {
    switch (even_kind(call_.kind)) {
      case OperationKind::kAllReduce: all_reduce(); break;
      case OperationKind::kBroadcast: broadcast(); break;
      case OperationKind::kReduce: reduce(); break;
      case OperationKind::kAllGather: all_gather(); break;
      case OperationKind::kReduceScatter: reduce_scatter(); break;
      case OperationKind::kBarrier:
        meet();
        inside({.kind = OperationKind::kBarrier});
        break;
      default:
        meet();
        stages_.push_back({.level = Level::kEverybody, .call = call_});
        break;
    }
    return std::move(stages_);
  }

 private:
  // The last call of every plan is a call inside this machine or of all ranks. It completes only after ranks of this
  // machine have communicated with the other machines. So every rank finds a mismatch in the call that differs, not in
  // a later call.
  void inside(Call call) { add(Level::kInside, std::move(call)); }
  void between(Call call) { add(Level::kBetween, std::move(call)); }
  void here(std::function<void()> work) { stages_.push_back({.work = std::move(work)}); }
  void add(Level level, Call call) {
    call.tag = tag_;
    if (call.kind != OperationKind::kBarrier) call.type = call_.type;
    stages_.push_back({.level = level, .call = std::move(call)});
  }

  // Adds barriers inside and between the machines. Their tag contains a hash of the user's call, so ranks that made
  // different calls find the mismatch before a call among all ranks begins.
  void meet() {
    inside({.kind = OperationKind::kBarrier});
    if (layout_.place == 0) between({.kind = OperationKind::kBarrier});
  }

  bool is_first() const { return layout_.place == 0; }
  bool is_carrier() const { return layout_.place < carriers_; }
  std::byte* scratch(int area, std::size_t count) const { return scratch_(area, count * element_); }

  // Cuts `count` elements into one slice for each carrier of this machine. A carrier is a rank that exchanges data with
  // other machines (plan.h). The other ranks of this machine get empty slices.
  void cut(std::size_t count) {
    carriers_ = count * element_ <= kOneCarrierBytes ? 1 : layout_.carriers;
    slices_ = schedule::even_cut(count, static_cast<std::size_t>(carriers_));
    slices_.resize(layout_.neighbours().size());
    own_ = slices_[static_cast<std::size_t>(layout_.place)];
    begin_ = begin_of(slices_, layout_.place) * element_;
  }

  // Adds a stage that divides the sum by the number of ranks, if the call asks for an average. The stages before it
  // compute a sum.
  void finish(std::byte* data, std::size_t count) {
    if (call_.op != ReduceOp::kAvg || count == 0) return;
    here([data, count, type = call_.type, ranks = size_] {
      const std::byte* input = data;
      std::byte* output = data;
      reduce::run({.inputs = &input,
                   .outputs = &output,
                   .input_count = 1,
                   .output_count = 1,
                   .count = count,
                   .type = type,
                   .op = ReduceOp::kAvg,
                   .divisor = ranks});
    });
  }

  // Adds a stage that sums the inputs of this machine's ranks. Each rank gets its own slice of the sum in `slice`.
  void add_up(std::byte* slice) {
    inside({.kind = OperationKind::kReduceScatterV,
            .input = input_,
            .output = slice,
            .op = op_,
            .factor = call_.factor,
            .counts = slices_});
  }

  void all_reduce() {
    cut(call_.count);
    std::byte* const slice = output_ + begin_;
    add_up(slice);
    if (is_carrier()) {
      between({.kind = OperationKind::kAllReduce, .input = slice, .output = slice, .count = own_, .op = op_});
      finish(slice, own_);
    }
    inside({.kind = OperationKind::kAllGatherV, .input = slice, .output = output_, .counts = slices_});
  }

  void broadcast() {
    cut(call_.count);
    const int source = layout_.machine_of(call_.root);
    const bool at_source = layout_.machine == source;
    std::byte* const slice = output_ + begin_;
    if (at_source) {
      inside({.kind = OperationKind::kBroadcast,
              .input = input_,
              .output = output_,
              .count = call_.count,
              .root = layout_.place_of(call_.root)});
    }
    if (is_carrier()) {
      between({.kind = OperationKind::kBroadcast, .input = slice, .output = slice, .count = own_, .root = source});
    }
    if (at_source) {
      inside({.kind = OperationKind::kBarrier});
    } else {
      inside({.kind = OperationKind::kAllGatherV, .input = slice, .output = output_, .counts = slices_});
    }
  }

  void reduce() {
    cut(call_.count);
    const int target = layout_.machine_of(call_.root);
    std::byte* const slice = scratch(0, own_);
    add_up(slice);
    if (is_carrier()) {
      between({.kind = OperationKind::kReduce,
               .input = slice,
               .output = layout_.machine == target ? slice : nullptr,
               .count = own_,
               .op = op_,
               .root = target});
    }
    if (layout_.machine != target) return inside({.kind = OperationKind::kBarrier});
    if (is_carrier()) finish(slice, own_);
    inside({.kind = OperationKind::kGatherV,
            .input = slice,
            .output = call_.root == layout_.rank ? output_ : nullptr,
            .root = layout_.place_of(call_.root),
            .counts = slices_});
  }

  // counts() returns the number of elements of each rank's block. counts_here() returns these numbers for the ranks of
  // this machine. counts_of_machines() returns their sum for each machine.
  Counts counts() const {
    return is_uneven(call_.kind) ? call_.counts : Counts(static_cast<std::size_t>(size_), call_.count);
  }
  Counts counts_here(const Counts& all) const {
    Counts here;
    for (const int q : layout_.neighbours()) here.push_back(all[static_cast<std::size_t>(q)]);
    return here;
  }
  Counts counts_of_machines(const Counts& all) const {
    Counts counts;
    for (const auto& members : layout_.machines) {
      std::size_t sum = 0;
      for (const int q : members) sum += all[static_cast<std::size_t>(q)];
      counts.push_back(sum);
    }
    return counts;
  }

  // Adds a stage that copies the blocks of all ranks from `from` to `to` and changes their order. kToRanks: the blocks
  // lie machine by machine in `from`, and in rank order in `to`. kToMachines: the blocks lie in rank order in `from`,
  // and machine by machine in `to`.
  enum class Order { kToRanks, kToMachines };
  void reorder(const std::byte* from, std::byte* to, const Counts& all, Order order) {
    here([from, to, all, order, ranks = layout_.order, element = element_] {
      std::size_t at = 0;
      for (const int q : ranks) {
        const std::size_t bytes = all[static_cast<std::size_t>(q)] * element;
        const std::size_t of_rank = begin_of(all, q) * element;
        if (bytes > 0 && order == Order::kToRanks) std::memcpy(to + of_rank, from + at, bytes);
        if (bytes > 0 && order == Order::kToMachines) std::memcpy(to + at, from + of_rank, bytes);
        at += bytes;
      }
    });
  }

  void all_gather() {
    const Counts all = counts();
    const Counts machines = counts_of_machines(all);
    const std::size_t total = begin_of(all, size_);
    std::byte* const packed = layout_.in_order ? output_ : scratch(0, total);
    std::byte* const own_machine = packed + begin_of(machines, layout_.machine) * element_;
    inside({.kind = OperationKind::kGatherV,
            .input = input_,
            .output = is_first() ? own_machine : nullptr,
            .counts = counts_here(all)});
    if (is_first()) {
      between({.kind = OperationKind::kAllGatherV, .input = own_machine, .output = packed, .counts = machines});
    }
    inside({.kind = OperationKind::kBroadcast, .input = packed, .output = packed, .count = total});
    if (!layout_.in_order) reorder(packed, output_, all, Order::kToRanks);
  }

  void reduce_scatter() {
    const Counts all = counts();
    const Counts machines = counts_of_machines(all);
    const std::size_t total = begin_of(all, size_);
    std::byte* sum = is_first() ? scratch(0, total) : nullptr;
    inside({.kind = OperationKind::kReduce,
            .input = input_,
            .output = sum,
            .count = total,
            .op = op_,
            .factor = call_.factor});
    std::byte* own_machine = nullptr;
    if (is_first()) {
      if (!layout_.in_order) {
        std::byte* const packed = scratch(1, total);
        reorder(sum, packed, all, Order::kToMachines);
        sum = packed;
      }
      own_machine = sum + begin_of(machines, layout_.machine) * element_;
      between(
          {.kind = OperationKind::kReduceScatterV, .input = sum, .output = own_machine, .op = op_, .counts = machines});
      finish(own_machine, machines[static_cast<std::size_t>(layout_.machine)]);
    }
    inside({.kind = OperationKind::kScatterV, .input = own_machine, .output = output_, .counts = counts_here(all)});
  }

  const Call& call_;
  const Layout& layout_;
  const std::string& tag_;
  const Scratch& scratch_;
  const std::size_t element_;
  const int size_;
  const ReduceOp op_;
  const std::byte* const input_;
  std::byte* const output_;
  int carriers_ = 1;
  Counts slices_;
  std::size_t own_ = 0;    // elements of this rank's slice
  std::size_t begin_ = 0;  // where this rank's slice begins, in bytes
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<Stage> plan(const Call& call, const Layout& layout, const std::string& tag, const Scratch& scratch) {
  return Planner(call, layout, tag, scratch).make();
}

}  // namespace reigen::comm::hierarchical
