#include "comm/mpi/message.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/call/mismatch_reports.h"
#include "comm/mpi/block.h"
#include "comm/mpi/library.h"
#include "reigen/base/deadline.h"

namespace reigen::comm::mpi {

namespace {

constexpr auto kFlushTime = std::chrono::seconds(2);
constexpr int kHeadTag = 0;
constexpr int kDataTag = 1;

struct Header {
  std::uint64_t count = 0;
  DataType type = DataType::kUint8;
  Tag tag = {};
};

}  // namespace

void Messages::forget_sent() {
  if (loose.empty()) return;
  const auto guard = Library::get().guard();
  std::erase_if(loose, [](Loose& one) {
    int done = 0;
    check(MPI_Test(&one.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
}

void Messages::flush() {
  const Deadline deadline = Deadline::after(kFlushTime);
  for (forget_sent(); !loose.empty() && !deadline.expired(); forget_sent()) std::this_thread::yield();
  if (loose.empty()) return;
  group.arena->quarantine();
  Library::get().finalize_in_time();
}

// Requests remain here only if the group has ended. MPI cannot cancel them, so their memory is never handed out again.
Message::~Message() {
  if (!requests_.empty()) Library::get().finalize_in_time();
}

void Message::check_peers(std::chrono::nanoseconds waited) const {
  messages_.group.control->check_message(call_.root, describe_message(messages_.options, number_, call_), waited);
}

void Send::begin() {
  const std::size_t inlined = is_short() ? call_.bytes() : 0;
  head_ = arena().take(sizeof(Header) + inlined);
  const Header header{.count = call_.count, .type = call_.type, .tag = Tag(call_.tag)};
  std::memcpy(head_.get(), &header, sizeof(header));
  if (inlined > 0) std::memcpy(static_cast<std::byte*>(head_.get()) + sizeof(header), call_.input, inlined);
  const void* data = call_.input;
  if (!is_short() && !arena().owns(data, call_.bytes())) {
    staged_ = arena().take(call_.bytes());
    std::memcpy(staged_.get(), data, call_.bytes());
    data = staged_.get();
  }
  const auto guard = Library::get().guard();
  check(MPI_Isend(head_.get(), static_cast<int>(sizeof(header) + inlined), MPI_BYTE, call_.root, kHeadTag,
                  messages_.communicator, &requests_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend");
  if (is_short()) return;
  const Block block(call_.bytes());
  check(MPI_Isend(data, block.count(), block.type(), call_.root, kDataTag, messages_.communicator,
                  &requests_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend");
}

Step Send::advance() {
  if (!begun_) {
    begun_ = true;
    begin();
    if (!is_short()) {
      messages_.moving += 1;
      return Step::kMoved;
    }
    messages_.forget_sent();
    messages_.loose.push_back({requests_.front(), head_});
    requests_.clear();
    return Step::kDone;
  }
  if (!all_done(requests_)) return Step::kBlocked;
  messages_.moving -= 1;
  return Step::kDone;
}

// The receive buffer has room for the data of a short message even if this rank expects a longer message, because the
// sender may have sent a short one. compare() then finds the difference.
void Recv::expect_head() {
  constexpr std::size_t kMost = sizeof(Header) + kShortMessage;
  head_ = arena().take(kMost);
  const auto guard = Library::get().guard();
  check(MPI_Irecv(head_.get(), static_cast<int>(kMost), MPI_BYTE, call_.root, kHeadTag, messages_.communicator,
                  &requests_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Irecv");
}

void Recv::compare() const {
  const auto& header = *static_cast<const Header*>(head_.get());
  try {
    compare_message(messages_.options, number_, call_, {header.count, header.type, header.tag});
  } catch (const CollectiveMismatch&) {
    Library::get().finalize_in_time();  // the sent data is never received, and MPI_Finalize may wait for it
    throw;
  }
}

void Recv::expect_data() {
  void* into = call_.output;
  if (!arena().owns(into, call_.bytes())) {
    staged_ = arena().take(call_.bytes());
    into = staged_.get();
  }
  const auto guard = Library::get().guard();
  const Block block(call_.bytes());
  check(MPI_Irecv(into, block.count(), block.type(), call_.root, kDataTag, messages_.communicator,
                  &requests_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Irecv");
  messages_.moving += 1;
}

Step Recv::finish() {
  if (is_short()) {
    if (call_.count > 0) {
      std::memcpy(call_.output, static_cast<const std::byte*>(head_.get()) + sizeof(Header), call_.bytes());
    }
  } else {
    messages_.moving -= 1;
    if (staged_) std::memcpy(call_.output, staged_.get(), call_.bytes());
  }
  pair_.next_recv += 1;
  return Step::kDone;
}

Step Recv::advance() {
  if (!is_its_turn()) return Step::kBlocked;
  if (phase_ == Phase::kFirst) {
    expect_head();
    phase_ = Phase::kHead;
  }
  if (!all_done(requests_)) return Step::kBlocked;
  if (phase_ == Phase::kHead) {
    compare();
    if (is_short()) return finish();
    expect_data();
    phase_ = Phase::kData;
    return Step::kMoved;
  }
  return finish();
}

}  // namespace reigen::comm::mpi
