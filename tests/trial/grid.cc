#include "trial/grid.h"

#include <algorithm>

#include "base/machine/cache_size.h"
#include "comm/hierarchical/plan.h"
#include "comm/schedule/table.h"
#include "comm/shared_memory/page.h"
#include "comm/tcp/collective.h"
#include "trial/algorithms.h"
#include "trial/bits.h"
#include "trial/trial.h"

namespace reigen::trial {

namespace {

using comm::DataType;
using comm::OperationKind;
using comm::ReduceOp;

constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUint8,   DataType::kInt16,    DataType::kInt32,
                               DataType::kInt64,   DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                               DataType::kFloat64, DataType::kBool};
constexpr DataType kFloats[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProd, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kBor,  ReduceOp::kBxor};
constexpr OperationKind kKinds[] = {
    OperationKind::kAllReduce,      OperationKind::kReduceScatter, OperationKind::kAllGather, OperationKind::kBroadcast,
    OperationKind::kReduce,         OperationKind::kGather,        OperationKind::kScatter,   OperationKind::kAllToAll,
    OperationKind::kReduceScatterV, OperationKind::kAllGatherV,    OperationKind::kGatherV,   OperationKind::kScatterV,
    OperationKind::kAllToAllV,      OperationKind::kSend};
constexpr OperationKind kReducing[] = {OperationKind::kAllReduce, OperationKind::kReduce,
                                       OperationKind::kReduceScatter};
constexpr OperationKind kCopying[] = {OperationKind::kAllGather, OperationKind::kBroadcast, OperationKind::kGather,
                                      OperationKind::kScatter, OperationKind::kAllToAll};
constexpr ReduceOp kArithmetic[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax};

bool may_be_in_place(OperationKind kind) {
  const OperationKind even = comm::even_kind(kind);
  return even != OperationKind::kAllToAll && even != OperationKind::kBroadcast && even != OperationKind::kSend;
}

bool takes_factors(const Problem& p) {
  return comm::reduces(p.kind) && p.op == ReduceOp::kSum &&
         std::find(std::begin(kFloats), std::end(kFloats), p.type) != std::end(kFloats);
}

class Grid {
 public:
  Grid(Communicator& world, const GridOptions& options)
      : world_(world), options_(options), supply_(world, true), index_(options.seed) {}

  GridCounts run() {
    for (const Problem& combination : all_combinations(world_.size())) {
      if (good_ && is_asked(combination)) run_combination(combination);
    }
    if (good_) run_bits();
    if (good_) run_streaming();
    if (good_) run_nan();
    return counts_;
  }

 private:
  void count(const std::string& what, const std::optional<std::string>& wrong) {
    counts_[what] += 1;
    if (!wrong) return;
    good_ = false;
    options_.on_wrong(*wrong);
  }

  bool is_asked(const Problem& p) const {
    return options_.algorithm.empty() || has_algorithm(p.kind, options_.algorithm);
  }

  // Every kind of memory, if the backend takes another way in memory from allocate(). Over tcp it does not, so the
  // kinds take turns.
  std::vector<Memory> memories() const {
    if (world_.backend() == "tcp") return {static_cast<Memory>((mix(index_) >> 40) % 3)};
    return {Memory::kShared, Memory::kForeign, Memory::kMixed};
  }

  // False if the order of additions is another one (docs/errors.md): MPI decides it itself, hierarchical groups first
  // add on each machine, and selected algorithms over tcp have their own order. These also round 16-bit sums on the
  // way.
  bool adds_in_rank_order() const {
    const std::string& backend = world_.backend();
    return backend == "self" || backend == "shared_memory" || (backend == "tcp" && options_.algorithm.empty());
  }

  // Runs one case. Values that the grid does not combine with all others take turns: manner, root and factors.
  void run_one(Problem p) {
    index_ += 1;
    const std::uint64_t hash = mix(index_);
    const auto ranks = static_cast<std::uint64_t>(world_.size());
    p.seed = index_;
    p.manner = static_cast<Manner>((hash >> 24) % 4);
    p.root = hash % 3 == 0 ? 0 : hash % 3 == 1 ? world_.size() - 1 : static_cast<int>((hash >> 8) % ranks);
    p.factors = takes_factors(p) && (hash >> 20) % 2 == 0;
    Trial trial(p, world_, supply_);
    trial.run();
    count(p.kind == OperationKind::kSend ? "send_recv" : comm::name_of(p.kind), trial.find_wrong());
  }

  void run_combination(Problem p) {
    const auto counts = counts_for(p, world_.backend(), world_.size());
    if (options_.quick) {
      const std::uint64_t hash = mix(index_ + 1000003);
      p.count = counts[hash % counts.size()];
      p.memory = static_cast<Memory>((hash >> 16) % 3);
      p.in_place = may_be_in_place(p.kind) && (hash >> 32) % 2 == 0;
      return run_one(p);
    }
    for (const std::size_t n : counts) {
      for (const Memory memory : memories()) {
        for (const bool in_place : {false, true}) {
          if ((in_place && !may_be_in_place(p.kind)) || !good_) continue;
          p.count = n;
          p.memory = memory;
          p.in_place = in_place;
          run_one(p);
        }
      }
    }
  }

  // Data of more than twice the last-level cache, which is written past the cache.
  void run_streaming() {
    if (options_.quick) return;
    const auto ranks = static_cast<std::size_t>(world_.size());
    const std::size_t touched = 2 * base::last_level_cache_bytes() + 4096;
    for (const OperationKind kind : kReducing) {
      if (!is_asked({.kind = kind})) continue;
      for (const DataType type : kTypes) {
        if (!good_) return;
        const std::size_t passes = kind == OperationKind::kAllReduce ? 2 * ranks : ranks + 1;
        const std::size_t share = kind == OperationKind::kReduceScatter ? ranks : 1;
        Problem p{.kind = kind, .type = type, .op = ReduceOp::kSum};
        p.count = touched / comm::size_of(type) / passes / share + 1;
        run_one(p);
      }
    }
    for (const OperationKind kind : kCopying) {
      if (!is_asked({.kind = kind}) || !good_) continue;
      const std::size_t blocks = kind == OperationKind::kBroadcast   ? ranks
                                 : kind == OperationKind::kAllGather ? ranks * (ranks + 1)
                                 : kind == OperationKind::kAllToAll  ? 2 * ranks * ranks
                                                                     : 2 * ranks;
      run_one({.kind = kind, .type = DataType::kFloat32, .count = touched / sizeof(float) / blocks + 1});
    }
  }

  void run_bits() {
    const bool ordered = adds_in_rank_order();
    for (const OperationKind kind : kReducing) {
      if (!is_asked({.kind = kind})) continue;
      for (const DataType type : kTypes) {
        for (const ReduceOp op : kOps) {
          if (!comm::is_defined(op, type) || type == DataType::kBool || !good_) continue;  // a bool cannot be any byte
          const std::size_t n = options_.quick ? 700 : kind == OperationKind::kAllReduce ? 5003 : 1501;
          const int runs = options_.quick ? 2 : options_.runs;
          count("random bits", find_wrong_bits(world_, {kind, type, op, n, ++index_, runs, ordered}));
          if (options_.quick || !good_) continue;
          count("random bits", find_wrong_bits(world_, {kind, type, op, 100, ++index_, runs, ordered}));
          if (good_) count("random bits", find_wrong_bits(world_, {kind, type, op, 100003, ++index_, 6, ordered}));
        }
      }
    }
  }

  void run_nan() {
    for (const bool foreign : {false, true}) {
      for (const std::size_t n : {1U, 100U, 3000U, 140000U}) {
        if (options_.quick && n > 3000) continue;
        for (const DataType type : kFloats) {
          for (const OperationKind kind : kReducing) {
            if (!is_asked({.kind = kind})) continue;
            for (const ReduceOp op : kArithmetic) {
              if (good_) count("NaN of one rank", find_wrong_nan(world_, kind, type, op, n, foreign));
            }
          }
          const bool narrow = type == DataType::kFloat16 || type == DataType::kBfloat16;
          if (narrow && good_ && adds_in_rank_order() && is_asked({.kind = OperationKind::kAllReduce}))
            count("16 bits added in fp32", find_narrow_sum(world_, type, n, foreign));
        }
      }
    }
  }

  Communicator& world_;
  const GridOptions& options_;
  Supply supply_;
  std::uint64_t index_;
  GridCounts counts_;
  bool good_ = true;
};

}  // namespace

std::vector<Problem> all_combinations(int ranks) {
  std::vector<Problem> all;
  for (const OperationKind kind : kKinds) {
    if (kind == OperationKind::kSend && ranks < 2) continue;
    for (const DataType type : kTypes) {
      if (!comm::reduces(kind)) {
        all.push_back({.kind = kind, .type = type});
        continue;
      }
      for (const ReduceOp op : kOps) {
        if (comm::is_defined(op, type)) all.push_back({.kind = kind, .type = type, .op = op});
      }
    }
  }
  return all;
}

namespace {

using Sizes = std::vector<std::size_t>;

constexpr std::size_t kShortMpiMessage = 1024;  // the value in mpi/message.h, which needs MPI

// Sizes in bytes: of a message, or of the whole array of a collective.
Sizes shared_memory_sizes(OperationKind kind, int ranks) {
  namespace shared = comm::shared_memory;
  if (kind == OperationKind::kSend) {
    return {shared::kMessageInlineBytes, shared::kMessageChunkBytes,
            shared::kMessageChunkBytes * shared::kMessageChunks};
  }
  Sizes sizes = {shared::kTinyBytes, shared::kStagingBytes, 2 * shared::kStagingBytes};
  for (const bool cores_for_all : {true, false}) {
    // If each rank gives one block, a count is that of a block.
    const bool gives_one_block = kind == OperationKind::kAllGather || kind == OperationKind::kGather;
    const std::size_t given = gives_one_block ? static_cast<std::size_t>(ranks) : 1;
    sizes.push_back(shared::usual_one_shot(kind, ranks, cores_for_all) / given);
  }
  return sizes;
}

Sizes tcp_sizes(int ranks) {
  Sizes sizes = comm::schedule::switch_points();
  sizes.push_back(comm::tcp::kPieceBytes);
  sizes.push_back(comm::tcp::kPieceBytes * static_cast<std::size_t>(ranks));
  return sizes;
}

Sizes sizes_where_the_way_changes(const Problem& problem, const std::string& backend, int ranks) {
  if (backend == "tcp") return tcp_sizes(ranks);
  if (backend == "mpi") return {kShortMpiMessage};
  Sizes sizes = shared_memory_sizes(comm::even_kind(problem.kind), ranks);
  if (backend != "hierarchical") return sizes;
  for (const std::size_t size : tcp_sizes(ranks)) sizes.push_back(size);
  sizes.push_back(comm::hierarchical::kOneCarrierBytes);
  return sizes;
}

}  // namespace

std::vector<std::size_t> counts_for(const Problem& problem, const std::string& backend, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  const std::size_t size = comm::size_of(problem.type);
  const OperationKind even = comm::even_kind(problem.kind);
  const bool in_blocks =
      even == OperationKind::kReduceScatter || even == OperationKind::kAllToAll || even == OperationKind::kScatter;
  const std::size_t blocks = in_blocks ? p : 1;
  std::vector<std::size_t> counts = {0, 1, p - 1, p + 1, 64 / size + 1, 1000, 100003};
  for (const std::size_t bytes : sizes_where_the_way_changes(problem, backend, ranks)) {
    counts.push_back(bytes / blocks / size);
    counts.push_back(bytes / blocks / size + 1);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

GridCounts run_grid(Communicator& world, const GridOptions& options) { return Grid(world, options).run(); }

}  // namespace reigen::trial
