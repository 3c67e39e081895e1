#include "train/agree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/host_name.h"
#include "train/failure.h"

namespace reigen::train {

namespace {

struct Outcome {
  std::int64_t code = 0;
  std::int64_t length = 0;
};

std::string broadcast_text(Communicator& world, std::string text, std::int64_t length, int root) {
  text.resize(static_cast<std::size_t>(length));
  if (length > 0) world.broadcast(text.data(), text.size(), DataType::kUint8, root, {.tag = "text"}).wait();
  return text;
}

}  // namespace

void together(Communicator& world, const char* what, const std::function<void()>& body) {
  Outcome mine;
  std::string text;
  try {
    body();
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    mine.code = failure.exit_code;
    text = failure.text;
  }
  mine.length = static_cast<std::int64_t>(text.size());
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<Outcome> all(size);
  world.all_gather(&mine, all.data(), 2, DataType::kInt64, {.tag = what}).wait();
  std::size_t failed = 0;
  std::size_t first = size;
  for (std::size_t rank = size; rank-- > 0;) {
    if (all[rank].code == 0) continue;
    first = rank;
    ++failed;
  }
  if (failed == 0) return;
  const int root = static_cast<int>(first);
  if (failed < size && world.rank() == root && world.size() > 1 && root != 0) {
    text = fmt::format("rank {} of {} ({}): {}", root, size, base::host_name(), text);
  }
  std::int64_t length = static_cast<std::int64_t>(text.size());
  world.broadcast(&length, 1, DataType::kInt64, root, {.tag = "error length"}).wait();
  throw CommonError(static_cast<ExitCode>(all[first].code), broadcast_text(world, text, length, root));
}

bool any_wishes_to_stop(Communicator& world, bool here) {
  std::int32_t any = here ? 1 : 0;
  if (world.size() > 1) {
    world.all_reduce(&any, &any, 1, DataType::kInt32, ReduceOp::kMax, {.tag = "wish to stop"}).wait();
  }
  return any != 0;
}

std::string share_text(Communicator& world, std::string text) {
  auto length = static_cast<std::int64_t>(text.size());
  world.broadcast(&length, 1, DataType::kInt64, 0, {.tag = "text length"}).wait();
  return broadcast_text(world, std::move(text), length, 0);
}

}  // namespace reigen::train
