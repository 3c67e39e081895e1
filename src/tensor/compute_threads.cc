#include "reigen/tensor/compute_threads.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "base/cores.h"
#include "base/environment.h"
#include "base/log.h"
#include "comm/peer_process.h"
#include "net/interfaces.h"
#include "reigen/format/hash.h"

namespace reigen::tensor {

namespace {

// Where a rank's process is.
struct Place {
  std::uint64_t machine = 0;
  std::uint64_t space = 0;  // in which its number counts
  std::int64_t pid = 0;
};
static_assert(sizeof(Place) == 24);

base::CoreShare share_of_this_rank(Communicator& ranks) {
  if (ranks.size() == 1) return base::share_cores(1);
  const std::string machine = net::machine_identity();
  const Place own{
      .machine = format::hash64(machine.data(), machine.size()), .space = comm::process_namespace(), .pid = ::getpid()};
  std::vector<Place> places(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&own, places.data(), sizeof own, DataType::kUint8, {.tag = "who shares the processors"});
  std::vector<pid_t> here;
  std::size_t rank = 0;
  for (std::size_t q = 0; q < places.size(); ++q) {
    if (q == static_cast<std::size_t>(ranks.rank())) rank = here.size();
    if (places[q].machine != own.machine) continue;
    here.push_back(places[q].space == own.space ? static_cast<pid_t>(places[q].pid) : base::kUnseen);
  }
  return base::share_cores(here, rank);
}

// Our launcher has warned of what it gave.
bool was_said(int threads) {
  static std::atomic<bool> said = false;
  const bool by_launcher = base::environment::store() && threads == base::threads_by_environment();
  return by_launcher || said.exchange(true);
}

}  // namespace

void share_cores(Communicator ranks, int threads) {
  const base::CoreShare share = share_of_this_rank(ranks);
  const int by_environment = base::threads_by_environment();
  const int wanted = threads > 0          ? threads
                     : by_environment > 0 ? std::max(1, by_environment / share.ranks_in_process)
                                          : share.threads;
  const int before = at::get_num_threads();
  if (threads > 0 || before > wanted) at::set_num_threads(wanted);
  const int now = at::get_num_threads();
  if (now != before) {
    base::log_info("rank {}: {} thread{} in place of {}, as {} here share {}", ranks.rank(), now, now == 1 ? "" : "s",
                   before, share.ranks == 1 ? "1 rank" : std::to_string(share.ranks) + " ranks", share.limit);
  }
  const std::string shortage = share.is_first ? base::describe_shortage(share, now) : "";
  if (!shortage.empty() && !was_said(now)) base::log_warning("{}", shortage);
}

}  // namespace reigen::tensor
