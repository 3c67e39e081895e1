#include "comm/hierarchical/group.h"

#include <fmt/format.h>

#include <algorithm>

namespace reigen::comm::hierarchical {

namespace {

// Added to the rank of a cause that is passed on through the levels: it is one of the whole group already.
constexpr int kOfTheWhole = 1 << 20;

}  // namespace

std::vector<Part*> Group::parts() {
  std::vector<Part*> all;
  for (Part* part : {&inside, &between, &everybody}) {
    if (part->backend) all.push_back(part);
  }
  return all;
}

std::byte* Group::scratch(int area, std::size_t bytes) {
  Area& wanted = areas_[area];
  if (wanted.bytes < bytes) {
    wanted = {};
    wanted = {inside.backend->allocate(bytes), bytes};
  }
  return static_cast<std::byte*>(wanted.memory.get());
}

void Group::translated(const Part& part, const std::string& what, const std::function<void()>& action) {
  const auto legend = [&] {
    std::string ranks;
    for (std::size_t i = 0; i < part.ranks.size(); ++i) {
      ranks += fmt::format("{}{} is rank {}", i == 0 ? "" : ", ", i, part.ranks[i]);
    }
    return fmt::format("  of group \"{}\" (rank {} of \"{}\")", part.name, ranks, options.name);
  };
  try {
    action();
  } catch (const PeerLost& error) {
    if (error.rank() >= kOfTheWhole) throw PeerLost(error.rank() - kOfTheWhole, error.what());
    if (error.rank() < 0) throw;
    const int rank = part.ranks[static_cast<std::size_t>(error.rank())];
    throw PeerLost(rank,
                   fmt::format("{}: {} is lost\n{}\n{}", what, control.describe_peer(rank), error.what(), legend()));
  } catch (const CollectiveMismatch& error) {
    if (&part == &everybody) throw;
    throw CollectiveMismatch(fmt::format("{}\n{}", error.what(), legend()));
  }
}

std::string Group::last_algorithm() const {
  const std::lock_guard lock(mutex_);
  return last_algorithm_;
}

void Group::note_algorithm(const std::string& stages) {
  const std::lock_guard lock(mutex_);
  last_algorithm_ = stages;
}

void Group::publish_abort(const AbortCause& cause) {
  AbortCause passed_on = cause;
  if (passed_on.rank >= 0) passed_on.rank += kOfTheWhole;
  for (Part* part : parts()) part->backend->publish_abort(passed_on);
  control.publish_abort(cause);
}

}  // namespace reigen::comm::hierarchical
