#include "comm/call/mismatch_reports.h"

#include <fmt/format.h>

namespace reigen::comm {

namespace {

std::string describe_buffer(std::uint64_t count, DataType type, std::string_view tag) {
  std::string text = fmt::format("{} {}", count, name_of(type));
  if (!tag.empty()) text += fmt::format(" \"{}\"", tag);
  return text;
}

}  // namespace

std::string calls_differ(const std::string& group, std::uint64_t sequence, const std::string& differs,
                         const RankCall& first, const RankCall& other) {
  return to_string(
      Report{.what = fmt::format("[{}] group \"{}\" call #{}: ranks {} and {} differ in the {}",
                                 name_of(first.call.kind), group, sequence, first.rank, other.rank, differs),
             .got = fmt::format("rank {}: {}", other.rank, describe(other.call)),
             .expected = fmt::format("as rank {}: {}", first.rank, describe(first.call)),
             .fix = "every rank must make the same calls in the same order"});
}

void throw_exchange_differs(const std::string& group, std::uint64_t sequence, const Exchange& e) {
  throw CollectiveMismatch(
      to_string(Report{.what = fmt::format("[all_to_all_v] group \"{}\" call #{}: ranks {} and {} differ in the counts",
                                           group, sequence, e.giver, e.taker),
                       .got = fmt::format("rank {} gives {} elements to rank {}", e.giver, e.gives, e.taker),
                       .expected = fmt::format("{} elements, as rank {} said", e.takes, e.taker),
                       .fix = "arrives[q] on rank r must be leaves[r] on rank q"}));
}

std::string describe_message(const GroupOptions& group, std::uint64_t number, const Call& call) {
  return fmt::format("[{}] rank {} of {} group \"{}\" message #{} {} rank {} ({})", name_of(call.kind), group.rank,
                     group.size, group.name, number, call.kind == OperationKind::kSend ? "to" : "from", call.root,
                     describe_buffer(call.count, call.type, call.tag));
}

void compare_message(const GroupOptions& group, std::uint64_t number, const Call& recv, const SentMessage& sent) {
  const char* what = sent.count != recv.count      ? "count"
                     : sent.type != recv.type      ? "type"
                     : sent.tag.text() != recv.tag ? "tag"
                                                   : nullptr;
  if (what == nullptr) return;
  throw CollectiveMismatch(to_string(Report{
      .what = fmt::format("[recv] group \"{}\" message #{} from rank {} to rank {}: send and recv differ in the {}",
                          group.name, number, recv.root, group.rank, what),
      .got = fmt::format("rank {}: send({})", recv.root, describe_buffer(sent.count, sent.type, sent.tag.text())),
      .expected = fmt::format("rank {}: recv({})", group.rank, describe_buffer(recv.count, recv.type, recv.tag)),
      .fix = "the n-th send to a rank meets its n-th recv"}));
}

}  // namespace reigen::comm
