#include "reigen/tensor/compute_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "base/machine/cores.h"
#include "base/text.h"
#include "comm/core_share_of.h"

namespace reigen::tensor {

namespace {

// The numbers of threads that share_cores() last set in LibTorch. 0 means that it has set none. LibTorch has one number
// of threads for the whole process, so the process also has one Told.
struct Told {
  std::atomic<int> share = 0;   // set as a rank's share of the cores
  std::atomic<int> choice = 0;  // set because the caller passed `threads`
};

Told& last_told() {
  static Told told;
  return told;
}

// Whether the program itself has set LibTorch's number of threads to `threads`. LibTorch does not say who set the
// number. If the program sets none, the number is one of these: the number of all processors (OpenMP's default), the
// number of all cores (MKL's default), the number in OMP_NUM_THREADS or MKL_NUM_THREADS, or a rank's share that
// share_cores() set before. Any other number is the program's choice. A number that the program passed to share_cores()
// is its choice too.
bool is_chosen_by_program(int threads) {
  if (threads == last_told().choice) return true;
  if (threads == last_told().share || threads == base::threads_by_environment()) return false;
  return !base::is_default_count(base::find_cores(), threads);
}

// Whether no warning about the number of threads is needed, because a warning was printed before or Reigen's launcher
// has set the number. The launcher itself warns of the number that it sets.
bool was_said(int threads) {
  static std::atomic<bool> said = false;
  const bool by_launcher = base::environment::store() && threads == base::threads_by_environment();
  return by_launcher || said.exchange(true);
}

int least_of(int threads, const Communicator& ranks) {
  if (ranks.size() == 1) return threads;
  std::int64_t least = threads;
  ranks.all_reduce(&least, &least, 1, DataType::kInt64, ReduceOp::kMin, {.tag = "threads of a rank"});
  return static_cast<int>(least);
}

}  // namespace

void share_cores(Communicator ranks, int threads) {
  const base::CoreShare share = comm::core_share_of(ranks);
  const int by_environment = base::threads_by_environment();
  const int before = at::get_num_threads();
  // If OMP_NUM_THREADS or MKL_NUM_THREADS is set (by_environment > 0), LibTorch already uses that number in each
  // process. This number is lowered only if several ranks share the process.
  const bool may_lower = (by_environment == 0 || share.ranks_in_process > 1) && !is_chosen_by_program(before);
  const int wanted = by_environment > 0 ? std::max(1, by_environment / share.ranks_in_process) : share.threads;
  // Ranks with different numbers of threads would round differently, so no rank takes more threads than the rank with
  // the fewest.
  const int own = may_lower ? std::min(before, wanted) : before;
  const int agreed = least_of(own, ranks);
  const int chosen = threads > 0 ? threads : may_lower ? agreed : before;
  if (threads > 0 || chosen < before) at::set_num_threads(chosen);
  if (threads > 0) last_told().choice = chosen;
  if (threads == 0 && chosen < before) last_told().share = chosen;
  const int now = at::get_num_threads();
  if (now != before) {
    const std::string others = threads == 0 && agreed < own ? ", and another rank takes no more" : "";
    base::log_info("rank {}: {} in place of {}, as {} here share {}{}", ranks.rank(), base::counted(now, "thread"),
                   before, base::counted(share.ranks, "rank"), share.limit, others);
  }
  const std::string shortage = share.is_first ? base::describe_shortage(share, now) : "";
  if (!shortage.empty() && !was_said(now)) base::log_warning("{}", shortage);
}

}  // namespace reigen::tensor
