#include "comm/hierarchical/group.h"

#include <fmt/format.h>

#include <algorithm>

namespace reigen::comm::hierarchical {

namespace {

// publish_abort() puts this character before the error text that it sends through the parts (the smaller groups,
// group.h). The character marks a text that already uses the rank numbers of the whole group.
constexpr char kOfTheWhole = '\x02';

bool is_of_the_whole(const Error& error) { return error.what()[0] == kOfTheWhole; }
std::string plain(const Error& error) { return error.what() + 1; }

}  // namespace

std::string legend(const Part& part, const std::string& whole) {
  std::string ranks;
  for (std::size_t i = 0; i < part.ranks.size(); ++i) {
    ranks += fmt::format("{}{} is rank {}", i == 0 ? "" : ", ", i, part.ranks[i]);
  }
  return fmt::format("of group \"{}\" (rank {} of \"{}\")", part.name, ranks, whole);
}

std::vector<const Part*> Group::parts() const {
  std::vector<const Part*> all;
  for (const Part& part : inside) {
    if (part.backend) all.push_back(&part);
  }
  for (const Part* part : {&between, &everybody}) {
    if (part->backend) all.push_back(part);
  }
  return all;
}

std::byte* Group::scratch(std::size_t lane, int area, std::size_t bytes) {
  Area& wanted = areas_[lane][area];
  if (wanted.bytes < bytes) {
    wanted = {};
    wanted = {inside[lane].backend->allocate(bytes), bytes};
  }
  return static_cast<std::byte*>(wanted.memory.get());
}

void Group::translated(const Part& part, const Words& what, const std::function<void()>& action) const {
  try {
    action();
  } catch (const PeerLost& error) {
    if (is_of_the_whole(error)) throw PeerLost(error.rank(), plain(error));
    if (error.rank() < 0) throw;
    const int rank = part.ranks[static_cast<std::size_t>(error.rank())];
    throw PeerLost(rank, fmt::format("{}: {} is lost\n{}\n  {}", what(), control.describe_peer(rank), error.what(),
                                     legend(part, options.name)));
  } catch (const CollectiveMismatch& error) {
    if (is_of_the_whole(error)) throw CollectiveMismatch(plain(error));
    if (&part == &everybody) throw;
    throw PartMismatch(fmt::format("{}\n  {}", error.what(), legend(part, options.name)));
  } catch (const Timeout& error) {
    if (is_of_the_whole(error)) throw Timeout(plain(error));
    throw Timeout(fmt::format("{}\n  {}", error.what(), legend(part, options.name)));
  } catch (const LeftPending& error) {
    if (!is_of_the_whole(error)) throw;
    throw LeftPending(plain(error));
  } catch (const Aborted& error) {
    if (!is_of_the_whole(error)) throw;
    throw Aborted(plain(error));
  }
}

void Group::throw_if_ended(const Words& what) const {
  for (const Part* part : parts()) translated(*part, what, [&] { part->backend->throw_if_ended(); });
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
  passed_on.text.insert(0, 1, kOfTheWhole);
  for (const Part* part : parts()) part->backend->publish_abort(passed_on);
  control.publish_abort(cause);
}

}  // namespace reigen::comm::hierarchical
