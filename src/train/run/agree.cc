#include "train/run/agree.h"

#include <cstdint>
#include <exception>
#include <utility>

#include "comm/agree.h"
#include "reigen/comm/byte_strings.h"
#include "train/run/failure.h"

namespace reigen::train {

void together(const Communicator& world, const char* what, const std::function<void()>& body) {
  const auto in_our_words = [&] {
    try {
      body();
    } catch (const Error&) {
      throw;
    } catch (...) {
      const Failure failure = failure_of(std::current_exception());
      throw Error(static_cast<ExitCode>(failure.exit_code), failure.text);
    }
  };
  comm::attempt(world, what, in_our_words, comm::Scope::kJob);
}

bool any_wishes_to_stop(const Communicator& world, bool here) {
  std::int32_t any = here ? 1 : 0;
  if (world.size() > 1) {
    world.all_reduce(&any, &any, 1, DataType::kInt32, ReduceOp::kMax, {.tag = "wish to stop"});
  }
  return any != 0;
}

std::string share_text(const Communicator& world, std::string text) {
  return comm::broadcast_bytes(std::move(text), 0, world, "text");
}

}  // namespace reigen::train
