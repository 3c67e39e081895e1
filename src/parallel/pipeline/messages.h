// The messages between the stages of a pipeline.
//
// How it works: each message consists of tensors. A message of SEND_F begins with a head of 1 KiB, which has their
// types and shapes. A receiver learns from it how much memory the tensors need. The head has room for 11 tensors; a
// message of more has a second head with what is left. The receiver of SEND_B knows the tensors: they are those that it
// has sent. The n-th send from one rank to another meets the n-th receive, so receives from one rank are posted in the
// order of the sends: first the heads, then the tensors, then the next head. The tensors can be posted only when the
// heads have come. So expected messages form a queue for each rank from which they come. expect() and send() post what
// can be posted without waiting, and only take() waits.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/nn/unit.h"
#include "reigen/schedule/schedule.h"

namespace reigen::parallel {

// Throws InvalidArgument if a stage cannot give these tensors to the stage `target`: if there are more than 1024, or if
// one of them is undefined or has more than 8 dimensions. The limits are the same for stages on one rank.
void check_can_pass(int stage, int target, const nn::Carry& tensors);

class Messages {
 public:
  // `ranks`: the ranks along the axis of the pipeline. Tensors are received into memory of `device`.
  // All ranks must have the same number of micro-batches; the receiver of a head checks it.
  Messages(Communicator ranks, int micro_batches, at::Device device)
      : ranks_(std::move(ranks)), micro_batches_(micro_batches), device_(device) {}
  ~Messages();
  Messages(const Messages&) = delete;  // calls use its memory
  Messages& operator=(const Messages&) = delete;

  // Sends the tensors to the rank `to`. `send` is SEND_F or SEND_B. check_can_pass() must have accepted the tensors.
  void send(const schedule::Action& send, int to, const nn::Carry& tensors);
  // Expects the tensors of SEND_F from the rank `from`. `receive` is RECV_F. Does not wait.
  void expect(const schedule::Action& receive, int from);
  // Expects gradients like these tensors. `receive` is RECV_B. Does not wait.
  void expect(const schedule::Action& receive, int from, const nn::Carry& like);
  // Waits for an expected message. Tensors of RECV_F require a gradient if those of the sender do.
  nn::Carry take(const schedule::Action& receive);
  // Waits until all sends are complete.
  void finish();

  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  using Head = std::vector<std::int64_t>;
  enum class Part { kFirstHead, kSecondHead, kTensors, kNone };

  struct Incoming {
    schedule::Action receive;
    Part next = Part::kFirstHead;  // what is to be posted next
    Head head = {};                // both heads together
    Work head_work = {};           // of the head that was posted last
    nn::Carry like = {};           // what the tensors are like, if no head tells it
    nn::Carry tensors = {};
    std::vector<bool> require_gradient = {};
    std::vector<Work> works = {};  // of the tensors
  };
  struct Outgoing {
    Head head = {};
    std::vector<Work> head_works = {};
    std::vector<at::Tensor> tensors = {};
    std::vector<Work> works = {};  // of the tensors
  };

  Head head_of(const schedule::Action& send, const nn::Carry& tensors) const;
  void check_head(const Incoming& one) const;
  void make_tensors(Incoming& one) const;
  void drop_completed();
  // Posts the next part of a message. Waits for the head before it.
  void post(Incoming& one, int from);
  void post_tensors(Incoming& one, int from);
  // Posts what is left of the messages that this rank expects from `from`, as far as no head must be waited for.
  void post_all(int from);

  Communicator ranks_;
  int micro_batches_;
  at::Device device_;
  std::map<int, std::deque<std::unique_ptr<Incoming>>> expected_;  // by the rank from which they come
  std::deque<Outgoing> outgoing_;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace reigen::parallel
