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

constexpr std::size_t kMostTensors = 1024;
constexpr std::int64_t kMostDimensions = 8;
// the stage that gets the message, micro-batch, number of micro-batches, number of tensors, the stage that sends; then
// for each tensor its type, whether it requires a gradient, and its sizes
constexpr std::size_t kNumbers = 5;
constexpr std::size_t kNumbersOfTensor = 3 + static_cast<std::size_t>(kMostDimensions);
constexpr std::size_t kFirstHead = 128;  // the count of numbers in the first head: 1 KiB
static_assert(kNumbers + 11 * kNumbersOfTensor <= kFirstHead && kNumbers + 12 * kNumbersOfTensor > kFirstHead);

// The count of numbers in both heads together.
std::size_t length_of_heads(std::size_t tensors) { return std::max(kFirstHead, kNumbers + tensors * kNumbersOfTensor); }

// Both sides of a message have the same tag.
std::string tag_of(const Action& message) {
  return "pipeline " + to_text(schedule::is_send(message.kind) ? message : schedule::counterpart(message));
}

}  // namespace

void check_can_pass(int stage, int target, const nn::Carry& tensors) {
  REIGEN_CHECK(tensors.size() <= kMostTensors,
               "[pipeline] stage {} passes {} tensors to stage {}\n  expected: at most {}\n  fix: put tensors together "
               "(at::cat) before they leave the stage, or cut the model where fewer skip connections cross",
               stage, tensors.size(), target, kMostTensors);
  for (const at::Tensor& tensor : tensors) {
    REIGEN_CHECK(tensor.defined() && tensor.dim() <= kMostDimensions,
                 "[pipeline] stage {} passes {} to stage {}\n  expected: tensors of at most {} dimensions", stage,
                 tensor.defined() ? fmt::format("a tensor of {} dimensions", tensor.dim()) : "an undefined tensor",
                 target, kMostDimensions);
  }
}

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
  for (const Outgoing& one : outgoing_) {
    wait(one.head_works);
    wait(one.works);
  }
  for (const auto& [from, messages] : expected_) {
    for (const std::unique_ptr<Incoming>& one : messages) {
      wait({one->head_work});
      wait(one->works);
    }
  }
}

Messages::Head Messages::head_of(const Action& send, const nn::Carry& tensors) const {
  Head head(length_of_heads(tensors.size()));
  head[0] = send.peer;
  head[1] = send.micro_batch;
  head[2] = micro_batches_;
  head[3] = static_cast<std::int64_t>(tensors.size());
  head[4] = send.stage;
  auto* next = head.data() + kNumbers;
  for (const at::Tensor& tensor : tensors) {
    next[0] = static_cast<std::int64_t>(tensor.scalar_type());
    next[1] = tensor.requires_grad() ? 1 : 0;
    next[2] = tensor.dim();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), next + 3);
    next += kNumbersOfTensor;
  }
  return head;
}

void Messages::check_head(const Incoming& one) const {
  const Head& head = one.head;
  const Action came{schedule::Kind::kSendForward, static_cast<int>(head[4]), static_cast<int>(head[1]),
                    static_cast<int>(head[0])};
  const Action expected = schedule::counterpart(one.receive);
  REIGEN_CHECK(came == expected, "[pipeline] another message came\n  got: {}   expected: {}", to_text(came),
               to_text(expected));
  REIGEN_CHECK(
      head[2] == micro_batches_,
      "[pipeline] {}: the stages have different numbers of micro-batches\n  got: {} on the rank of stage {}, {} on "
      "this rank\n  fix: call step() with the same number on all ranks",
      to_text(one.receive), head[2], one.receive.peer, micro_batches_);
  REIGEN_ASSERT(head[3] >= 0 && head[3] <= static_cast<std::int64_t>(kMostTensors), "a head of {} tensors", head[3]);
}

void Messages::make_tensors(Incoming& one) const {
  if (one.head.empty()) {
    for (const at::Tensor& tensor : one.like) {
      one.tensors.push_back(at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
      one.require_gradient.push_back(false);
    }
    one.like.clear();
    return;
  }
  const auto* next = one.head.data() + kNumbers;
  for (std::int64_t i = 0; i < one.head[3]; ++i) {
    const at::IntArrayRef shape(next + 3, static_cast<std::size_t>(next[2]));
    one.tensors.push_back(
        at::empty(shape, at::TensorOptions().dtype(static_cast<at::ScalarType>(next[0])).device(device_)));
    one.require_gradient.push_back(next[1] != 0);
    next += kNumbersOfTensor;
  }
}

void Messages::drop_completed() {
  const auto is_complete = [](const std::vector<Work>& works) {
    return std::all_of(works.begin(), works.end(), [](const Work& work) { return work.is_completed(); });
  };
  while (!outgoing_.empty()) {
    const Outgoing& first = outgoing_.front();
    if (!is_complete(first.head_works) || !is_complete(first.works)) return;
    for (const Work& work : first.head_works) work.wait();  // throws the error of a call that failed
    for (const Work& work : first.works) work.wait();
    outgoing_.pop_front();
  }
}

void Messages::send(const Action& send, int to, const nn::Carry& tensors) {
  drop_completed();
  const std::string tag = tag_of(send);
  Outgoing& one = outgoing_.emplace_back();
  if (send.kind == schedule::Kind::kSendForward) {
    one.head = head_of(send, tensors);
    const auto send_part = [&](std::size_t first, std::size_t end) {
      one.head_works.push_back(
          ranks_.start_send(one.head.data() + first, end - first, DataType::kInt64, to, {.tag = tag}));
    };
    send_part(0, kFirstHead);
    if (one.head.size() > kFirstHead) send_part(kFirstHead, one.head.size());
    bytes_sent_ += one.head.size() * sizeof(std::int64_t);
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::Tensor given = tensor.detach().contiguous();
    one.works.push_back(ranks_.start_send(given.const_data_ptr(), given.nbytes(), DataType::kUint8, to,
                                          {.tag = tag, .after = tensor::stream_of(given)}));
    bytes_sent_ += given.nbytes();
    one.tensors.push_back(given);
  }
  for (const auto& [from, messages] : expected_) post_all(from);
}

void Messages::post_tensors(Incoming& one, int from) {
  make_tensors(one);
  const std::string tag = tag_of(one.receive);
  for (const at::Tensor& tensor : one.tensors) {
    if (tensor.numel() == 0) continue;
    one.works.push_back(ranks_.start_recv(tensor.mutable_data_ptr(), tensor.nbytes(), DataType::kUint8, from,
                                          {.tag = tag, .after = tensor::stream_of(tensor)}));
  }
  one.next = Part::kNone;
}

void Messages::post(Incoming& one, int from) {
  one.head_work.wait();
  const auto receive_head = [&](std::size_t first, std::size_t end, Part next) {
    one.head.resize(end);
    one.head_work =
        ranks_.start_recv(one.head.data() + first, end - first, DataType::kInt64, from, {.tag = tag_of(one.receive)});
    one.next = next;
  };
  if (one.next == Part::kFirstHead) return receive_head(0, kFirstHead, Part::kSecondHead);
  if (one.next == Part::kSecondHead) {
    check_head(one);
    const std::size_t length = length_of_heads(static_cast<std::size_t>(one.head[3]));
    if (length > kFirstHead) return receive_head(kFirstHead, length, Part::kTensors);
  }
  post_tensors(one, from);
}

void Messages::post_all(int from) {
  for (const std::unique_ptr<Incoming>& one : expected_[from]) {
    while (one->next != Part::kNone) {
      if (!one->head_work.is_completed()) return;
      post(*one, from);
    }
  }
}

void Messages::expect(const Action& receive, int from) {
  expected_[from].push_back(std::make_unique<Incoming>(Incoming{.receive = receive}));
  post_all(from);
}

void Messages::expect(const Action& receive, int from, const nn::Carry& like) {
  expected_[from].push_back(
      std::make_unique<Incoming>(Incoming{.receive = receive, .next = Part::kTensors, .like = like}));
  post_all(from);
}

nn::Carry Messages::take(const Action& receive) {
  for (auto& [from, messages] : expected_) {
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [&](const std::unique_ptr<Incoming>& one) { return one->receive == receive; });
    if (found == messages.end()) continue;
    Incoming& one = **found;
    for (auto before = messages.begin(); one.next != Part::kNone; ++before) {
      while ((*before)->next != Part::kNone) post(**before, from);
    }
    post_all(from);  // what comes next may travel while this rank waits
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
    std::size_t next = 0;
    for (const Work& work : one.head_works) work.wait();
    for (const at::Tensor& tensor : one.tensors) tensor::wait_for(one.works[next++], tensor);
  }
  outgoing_.clear();
}

}  // namespace reigen::parallel
