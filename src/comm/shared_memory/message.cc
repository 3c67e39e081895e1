#include "comm/shared_memory/message.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/call/mismatch_reports.h"

namespace reigen::comm::shared_memory {

namespace {

// The offset in bytes, in a staging buffer of device memory, of the inline message of a slot. The inline messages lie
// after the chunks.
std::size_t inline_at(std::size_t slot) { return kMessageChunks * kMessageChunkBytes + slot * kMessageInlineBytes; }

}  // namespace

void Message::check_peers(std::chrono::nanoseconds waited) const { group_.check(call_.root, describe(), waited); }

std::string Message::describe() const { return describe_message(group_.options(), number_, call_); }

Message::Chunk Message::chunk(std::uint64_t index, std::uint64_t first) const {
  const std::size_t begin = index * kMessageChunkBytes;
  return {begin, std::min(kMessageChunkBytes, call_.bytes() - begin),
          (first + index) % kMessageChunks * kMessageChunkBytes};
}

bool Message::copy(void* to, const void* from, std::size_t bytes) {
  if (!job_) {
    std::memcpy(to, from, bytes);
    return true;
  }
  if (!is_copying_) {
    is_copying_ = true;
    job_->copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    job_->close_part();
  }
  is_copying_ = !job_->is_done();
  return !is_copying_;
}

// A staging buffer begins with the chunks. In device memory, room for inline messages follows the chunks.
void Send::make_staging() {
  if (pair_.staging != nullptr) return;
  const std::size_t bytes = kMessageChunks * kMessageChunkBytes + (job_ ? kMessageSlots * kMessageInlineBytes : 0);
  pair_.staging = group_.heap().allocate(bytes);
  own_box().staging = group_.heap().locate(pair_.staging.get(), bytes);
}

// Stores the message in this rank's box, or on a device in the staging buffer. Returns false while the device copies.
bool Send::fill_inline() {
  if (call_.bytes() == 0) return true;
  if (!job_) return copy(own_box().inlined[slot()].data(), call_.input, call_.bytes());
  make_staging();
  return copy(static_cast<std::byte*>(pair_.staging.get()) + inline_at(slot()), call_.input, call_.bytes());
}

// Returns false while earlier sends come first, or while all slots contain messages that the other rank has not taken.
// On a device, also returns false while the work before this call on its stream is not done, or while the device copies
// the message.
bool Send::announce() {
  if (pair_.next_send != number_ || other_box().taken.load() + kMessageSlots <= number_) return false;
  if (call_.before && !call_.before->is_done()) return false;
  if (call_.bytes() <= kMessageInlineBytes && !fill_inline()) return false;
  group_.throw_if_aborted();  // if messages are short, no wait lasts long enough for check_peers() to run
  MessageSlot& message = own_box().slots[slot()];
  message = {};
  message.count = call_.count;
  message.type = call_.type;
  message.tag.assign(call_.tag);
  if (call_.bytes() > kMessageInlineBytes) {
    message.data = group_.heap().locate(call_.input, call_.bytes(), group_.options().name);
    path_ = message.data.is_reachable() ? MessagePath::kDirect : MessagePath::kStaged;
  }
  if (path_ == MessagePath::kStaged) make_staging();
  message.path = path_;
  own_box().announced.store(number_ + 1);
  group_.ring(call_.root);
  return true;
}

Step Send::fill() {
  bool moved = false;
  for (; done_ < chunk_count(); ++done_) {
    const std::uint64_t index = pair_.filled + done_;
    if (index >= other_box().drained.load() + kMessageChunks) return moved ? Step::kMoved : Step::kBlocked;
    const Chunk piece = chunk(done_, pair_.filled);
    if (!copy(static_cast<std::byte*>(pair_.staging.get()) + piece.staged,
              static_cast<const std::byte*>(call_.input) + piece.begin, piece.bytes)) {
      return moved ? Step::kMoved : Step::kBlocked;
    }
    own_box().filled.store(index + 1);
    group_.ring(call_.root);
    moved = true;
  }
  pair_.filled += done_;
  pair_.next_send += 1;
  phase_ = Phase::kTaking;
  return Step::kMoved;
}

Step Send::advance() {
  switch (phase_) {
    case Phase::kAnnouncing:
      if (!announce()) return Step::kBlocked;
      if (path_ == MessagePath::kStaged) {
        phase_ = Phase::kFilling;
        return Step::kMoved;
      }
      pair_.next_send += 1;
      phase_ = Phase::kTaking;
      return path_ == MessagePath::kInline ? Step::kDone : Step::kMoved;
    case Phase::kFilling: return fill();
    case Phase::kTaking: break;
  }
  // A direct send waits until the other rank has copied from the sender's buffer. A staged send waits too, because the
  // other rank may not have mapped the staging buffer yet. If this process ended now, the other rank could no longer
  // map the staging buffer.
  return other_box().taken.load() > number_ ? Step::kDone : Step::kBlocked;
}

void Recv::compare() const {
  const MessageSlot& message = other_box().slots[slot()];
  compare_message(group_.options(), number_, call_, {message.count, message.type, message.tag});
}

const std::byte* Recv::reach(const Location& location) const {
  try {
    return group_.resolve(call_.root, location);
  } catch (const IoError& error) {
    if (error.exit_code() == ExitCode::kOsResource) throw;  // this rank itself lacks memory or file descriptors
    group_.throw_unreachable(call_.root, error.what(), describe());
  }
}

Step Recv::drain() {
  const std::byte* const staging = reach(other_box().staging);
  bool moved = false;
  for (; done_ < chunk_count(); ++done_) {
    const std::uint64_t index = pair_.drained + done_;
    if (other_box().filled.load() <= index) return moved ? Step::kMoved : Step::kBlocked;
    const Chunk piece = chunk(done_, pair_.drained);
    if (!copy(static_cast<std::byte*>(call_.output) + piece.begin, staging + piece.staged, piece.bytes)) {
      return moved ? Step::kMoved : Step::kBlocked;
    }
    own_box().drained.store(index + 1);
    group_.ring(call_.root);
    moved = true;
  }
  pair_.drained += done_;
  group_.throw_if_aborted();
  return finish();
}

Step Recv::finish() {
  own_box().taken.store(number_ + 1);
  group_.ring(call_.root);
  pair_.next_recv += 1;
  return Step::kDone;
}

Step Recv::advance() {
  if (draining_) return drain();
  if (pair_.next_recv != number_ || other_box().announced.load() <= number_) return Step::kBlocked;
  if (call_.before && !call_.before->is_done()) return Step::kBlocked;
  group_.throw_if_aborted();
  compare();
  const MessageSlot& message = other_box().slots[slot()];
  if (message.path == MessagePath::kStaged) {
    draining_ = true;
    return Step::kMoved;
  }
  if (call_.bytes() > 0) {
    const std::byte* const from = message.path != MessagePath::kInline ? reach(message.data)
                                  : job_                               ? reach(other_box().staging) + inline_at(slot())
                                                                       : other_box().inlined[slot()].data();
    if (!copy(call_.output, from, call_.bytes())) return Step::kBlocked;
    // A sender that has aborted may have changed its buffer during the copy, so the copied data cannot be trusted.
    if (message.path == MessagePath::kDirect) group_.throw_if_aborted();
  }
  return finish();
}

}  // namespace reigen::comm::shared_memory
