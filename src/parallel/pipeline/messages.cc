#include "parallel/pipeline/messages.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "tensor/calls.h"

namespace reigen::parallel {
namespace {

using schedule::Action;

constexpr std::size_t kMostTensors = 8;
constexpr std::int64_t kMostDimensions = 8;
// the stage that gets the message, micro-batch, number of micro-batches, number of tensors, the stage that sends; then
// for each tensor its type, whether it requires a gradient, and its sizes
constexpr std::size_t kNumbers = 5;
constexpr std::size_t kNumbersOfTensor = 3 + static_cast<std::size_t>(kMostDimensions);

// Both sides of a message have the same tag.
std::string tag_of(const Action& message) {
  return "pipeline " + to_text(schedule::is_send(message.kind) ? message : schedule::counterpart(message));
}

}  // namespace

// The memory must not be freed while a call uses it.
Messages::~Messages() {
  const auto wait = [](const std::vector<Work>& works) {
    for (const Work& work : works) {
      try {
        work.wait();
      } catch (const std::exception&) {  // the group's next call throws the error too
      }
    }
  };
  for (const Outgoing& one : outgoing_) wait(one.works);
  for (const auto& [from, messages] : expected_) {
    for (const std::unique_ptr<Incoming>& one : messages) {
      wait({one->head_work});
      wait(one->works);
    }
  }
}

Messages::Head Messages::head_of(const Action& send, const nn::Carry& tensors) const {
  static_assert(kNumbers + kMostTensors * kNumbersOfTensor <= kHead);
  REIGEN_CHECK(tensors.size() <= kMostTensors,
               "[pipeline] stage {} passes {} tensors to stage {}\n  expected: at most {}\n  fix: {}", send.stage,
               tensors.size(), send.peer, kMostTensors, "put tensors together (at::cat) before they leave the stage");
  Head head{};
  head[0] = send.peer;
  head[1] = send.micro_batch;
  head[2] = micro_batches_;
  head[3] = static_cast<std::int64_t>(tensors.size());
  head[4] = send.stage;
  auto* next = head.data() + kNumbers;
  for (const at::Tensor& tensor : tensors) {
    REIGEN_CHECK(tensor.defined() && tensor.dim() <= kMostDimensions,
                 "[pipeline] stage {} passes {}\n  expected: tensors of at most {} dimensions", send.stage,
                 tensor.defined() ? fmt::format("a tensor of {} dimensions", tensor.dim()) : "an undefined tensor",
                 kMostDimensions);
    next[0] = static_cast<std::int64_t>(tensor.scalar_type());
    next[1] = tensor.requires_grad() ? 1 : 0;
    next[2] = tensor.dim();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), next + 3);
    next += kNumbersOfTensor;
  }
  return head;
}

void Messages::read_head(Incoming& one) const {
  const Head& head = *one.head;
  const Action came{schedule::Kind::kSendForward, static_cast<int>(head[4]), static_cast<int>(head[1]),
                    static_cast<int>(head[0])};
  const Action expected = schedule::counterpart(one.receive);
  REIGEN_CHECK(came == expected, "[pipeline] another message came\n  got: {}   expected: {}", to_text(came),
               to_text(expected));
  const auto* next = head.data() + kNumbers;
  REIGEN_CHECK(
      head[2] == micro_batches_,
      "[pipeline] {}: the stages have different numbers of micro-batches\n  got: {} on the rank of stage {}, {} on "
      "this rank\n  fix: call step() with the same number on all ranks",
      to_text(one.receive), head[2], one.receive.peer, micro_batches_);
  for (std::int64_t i = 0; i < head[3]; ++i) {
    const at::IntArrayRef shape(next + 3, static_cast<std::size_t>(next[2]));
    one.tensors.push_back(
        at::empty(shape, at::TensorOptions().dtype(static_cast<at::ScalarType>(next[0])).device(device_)));
    one.require_gradient.push_back(next[1] != 0);
    next += kNumbersOfTensor;
  }
}

void Messages::send(const Action& send, int to, const nn::Carry& tensors) {
  while (!outgoing_.empty() && std::all_of(outgoing_.front().works.begin(), outgoing_.front().works.end(),
                                           [](const Work& work) { return work.is_completed(); })) {
    for (const Work& work : outgoing_.front().works) work.wait();  // throws the error of a call that failed
    outgoing_.pop_front();
  }
  const std::string tag = tag_of(send);
  Outgoing& one = outgoing_.emplace_back();
  if (send.kind == schedule::Kind::kSendForward) {
    one.head = std::make_unique<Head>(head_of(send, tensors));
    one.works.push_back(ranks_.start_send(one.head->data(), kHead, DataType::kInt64, to, {.tag = tag}));
    bytes_sent_ += sizeof(Head);
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::Tensor given = tensor.detach().contiguous();
    one.works.push_back(ranks_.start_send(given.const_data_ptr(), given.nbytes(), DataType::kUint8, to,
                                          {.tag = tag, .after = tensor::stream_of(given)}));
    bytes_sent_ += given.nbytes();
    one.tensors.push_back(given);
  }
}

void Messages::post(Incoming& one, int from) {
  if (one.head) {
    one.head_work.wait();
    read_head(one);
  }
  const std::string tag = tag_of(one.receive);
  for (const at::Tensor& tensor : one.tensors) {
    if (tensor.numel() == 0) continue;
    one.works.push_back(ranks_.start_recv(tensor.mutable_data_ptr(), tensor.nbytes(), DataType::kUint8, from,
                                          {.tag = tag, .after = tensor::stream_of(tensor)}));
  }
  one.is_posted = true;
}

void Messages::catch_up(int from) {
  for (const std::unique_ptr<Incoming>& one : expected_[from]) {
    if (!one->is_posted) post(*one, from);
  }
}

void Messages::expect(const Action& receive, int from) {
  catch_up(from);
  Incoming& one = *expected_[from].emplace_back(std::make_unique<Incoming>());
  one.receive = receive;
  one.head = std::make_unique<Head>();
  one.head_work = ranks_.start_recv(one.head->data(), kHead, DataType::kInt64, from, {.tag = tag_of(receive)});
}

void Messages::expect(const Action& receive, int from, const nn::Carry& like) {
  catch_up(from);
  Incoming& one = *expected_[from].emplace_back(std::make_unique<Incoming>());
  one.receive = receive;
  for (const at::Tensor& tensor : like) {
    one.tensors.push_back(at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
    one.require_gradient.push_back(false);
  }
  post(one, from);
}

nn::Carry Messages::take(const Action& receive) {
  for (auto& [from, messages] : expected_) {
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [&](const std::unique_ptr<Incoming>& one) { return one->receive == receive; });
    if (found == messages.end()) continue;
    if (!(*found)->is_posted) catch_up(from);
    Incoming& one = **found;
    std::size_t next = 0;
    for (const at::Tensor& tensor : one.tensors) {
      if (tensor.numel() > 0) tensor::wait_for(one.works[next++], tensor);
    }
    for (std::size_t i = 0; i < one.tensors.size(); ++i) one.tensors[i].requires_grad_(one.require_gradient[i]);
    nn::Carry tensors = std::move(one.tensors);
    messages.erase(found);
    return tensors;
  }
  REIGEN_CHECK(false, "[pipeline] {} was not posted", to_text(receive));
  return {};
}

void Messages::finish() {
  for (const Outgoing& one : outgoing_) {
    std::size_t next = one.head ? 1 : 0;
    if (one.head) one.works.front().wait();
    for (const at::Tensor& tensor : one.tensors) tensor::wait_for(one.works[next++], tensor);
  }
  outgoing_.clear();
}

}  // namespace reigen::parallel
