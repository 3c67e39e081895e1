// The messages between the stages of a pipeline.
//
// How it works: each message consists of tensors. A message of SEND_F begins with a head of 1 KiB, which has their
// types and shapes. A receiver learns from it how much memory the tensors need. The receiver of SEND_B knows them: they
// are those of the tensors that it has sent. The n-th send from one rank to another meets the n-th receive, so receives
// from one rank are posted in the order of the sends: first the head, then the tensors, then the next head. expect()
// posts the head only, and take() waits. If another expect() or a take() comes first, it posts what is left of earlier
// messages. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
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

class Messages {
 public:
  // `ranks`: the ranks along the axis of the pipeline. Tensors are received into memory of `device`.
  // All ranks must have the same number of micro-batches; the receiver of a head checks it.
  Messages(Communicator ranks, int micro_batches, at::Device device)
      : ranks_(std::move(ranks)), micro_batches_(micro_batches), device_(device) {}
  ~Messages();
  Messages(const Messages&) = delete;  // calls use its memory
  Messages& operator=(const Messages&) = delete;

  // Sends the tensors to the rank `to`. `send` is SEND_F or SEND_B.
  void send(const schedule::Action& send, int to, const nn::Carry& tensors);
  // Expects the tensors of SEND_F from the rank `from`. `receive` is RECV_F.
  void expect(const schedule::Action& receive, int from);
  // Expects gradients like these tensors. `receive` is RECV_B.
  void expect(const schedule::Action& receive, int from, const nn::Carry& like);
  // Waits for an expected message. Tensors of RECV_F require a gradient if those of the sender do.
  nn::Carry take(const schedule::Action& receive);
  // Waits until all sends are complete.
  void finish();

  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  static constexpr std::size_t kHead = 128;  // numbers in the head of a message
  using Head = std::array<std::int64_t, kHead>;

  struct Incoming {
    schedule::Action receive;
    std::unique_ptr<Head> head = {};  // null if the tensors are known
    Work head_work = {};
    bool is_posted = false;  // the receives of the tensors
    nn::Carry tensors = {};
    std::vector<bool> require_gradient = {};
    std::vector<Work> works = {};
  };
  struct Outgoing {
    std::unique_ptr<Head> head = {};
    std::vector<at::Tensor> tensors = {};
    std::vector<Work> works = {};
  };

  Head head_of(const schedule::Action& send, const nn::Carry& tensors) const;
  void read_head(Incoming& one) const;
  void post(Incoming& one, int from);
  // Posts what is left of the messages that this rank expects from `from`.
  void catch_up(int from);

  Communicator ranks_;
  int micro_batches_;
  at::Device device_;
  std::map<int, std::deque<std::unique_ptr<Incoming>>> expected_;  // by the rank from which they come
  std::deque<Outgoing> outgoing_;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace reigen::parallel
