// Send and recv over NCCL, each direction between two ranks on a lane of its own: they pass by collectives in any
// order.
//
// A message is a frame, in which a short one's data lies, and then the data of a longer one. A short send is done when
// its data is in the frame, unless kWindow of them are not taken yet; a longer one when its data is with the other
// rank. A recv takes the data once the frame has been compared with the own call.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/call/checked_operation.h"
#include "comm/nccl/courier.h"
#include "reigen/comm/options.h"

namespace reigen::comm::nccl {

// What the messages of a group share.
struct Messages {
  const Group& group;
  const GroupOptions& options;
  Courier& courier;
  device::OwnStream copies;  // into frames and out of them: waits for no other rank
};

class Message : public CheckedOperation {
 public:
  bool try_post() override { return true; }
  void check_peers(std::chrono::nanoseconds waited) const override;

 protected:
  // On the caller's thread: what call.after has to do until now comes first.
  Message(Messages& messages, Lane& lane, const Call& call);

  bool is_short() const { return call_.bytes() <= kShortMessage; }
  // Data that does not go in a frame.
  void push_data(std::byte* data);

  Messages& messages_;
  Lane& lane_;
  const Call call_;
  const std::uint64_t number_;
  std::shared_ptr<device::Event> ready_;
  std::shared_ptr<Transfer> transfer_;  // that this message waits for
};

class Send : public Message {
 public:
  Send(Messages& messages, const Call& call);
  Step advance() override;

 private:
  bool begin();

  bool begun_ = false;
  std::shared_ptr<device::Event> filled_;  // a short one's data is in its frame
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
