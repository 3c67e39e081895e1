// Send and recv over NCCL. Each direction between two ranks has a lane (a communicator and a stream, lane.h) of its
// own, so the order of a message and a collective need not be the same on all ranks.
//
// A message begins with a frame, which holds its count, type and tag. The frame also contains the data of a short
// message; the data of a longer message follows the frame. A short send completes when its data is in the frame. A send
// does not begin while kWindow earlier messages have not been received. A longer send completes when the other rank has
// its data. A recv compares the frame with its own call before it takes the data.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/call/checked_operation.h"
#include "comm/nccl/courier.h"
#include "reigen/comm/options.h"

namespace reigen::comm::nccl {

// The state that all messages of a group share.
struct Messages {
  const Group& group;
  const GroupOptions& options;
  Courier& courier;
  device::OwnStream copies;  // stream of the copies into and out of frames, which wait for no other rank
};

class Message : public CheckedOperation {
 public:
  bool try_post() override { return true; }
  void check_peers(std::chrono::nanoseconds waited) const override;

 protected:
  // Runs on the caller's thread. The message begins after the work that is on the stream call.after now.
  Message(Messages& messages, Lane& lane, const Call& call);

  bool is_short() const { return call_.bytes() <= kShortMessage; }
  // Queues the data of a longer message, which does not fit in a frame.
  void push_data(std::byte* data);

  Messages& messages_;
  Lane& lane_;
  const Call& call_;
  const std::uint64_t number_;
  std::shared_ptr<device::Event> ready_;
  std::shared_ptr<Transfer> transfer_;  // the transfer that this message waits for
};

class Send : public Message {
 public:
  Send(Messages& messages, const Call& call);
  Step advance() override;

 private:
  bool begin();

  bool begun_ = false;
  std::shared_ptr<device::Event> filled_;  // recorded after the frame is filled, with the data of a short message
};

class Recv : public Message {
 public:
  Recv(Messages& messages, const Call& call);
  Step advance() override;
  bool is_its_turn() const override { return lane_.next == number_; }

 private:
  enum class Phase { kFirst, kFrame, kData, kCopying };
  void expect_frame();
  void compare() const;
  Step take_short();
  Step finish();

  Phase phase_ = Phase::kFirst;
  device::Event copied_{messages_.group.device};
};

}  // namespace reigen::comm::nccl
