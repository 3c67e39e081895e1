#include "train/run/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <thread>

#include "base/machine/host_name.h"
#include "device/cuda_runtime.h"
#include "reigen/base/error.h"
#include "reigen/train/stop.h"

namespace reigen::train {

namespace {

constexpr const char* kFitIn =
    "\n  fix: train.micro_batch with fewer samples at a time, train.activation_checkpoint 1, parallel.shard "
    "parameters, or a smaller model";
constexpr auto kPatience = std::chrono::seconds(5);  // longer than a launcher takes to end the other ranks

std::string bug(const std::string& text) {
  return text +
         "\n  fix: look at the task and its data, if they are yours; else it is a bug of Reigen, please report it";
}

Failure plain(ExitCode code, const std::string& text) { return {.exit_code = static_cast<int>(code), .text = text}; }

}  // namespace

std::string first_line_of(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    Failure failure = plain(lost.exit_code(), lost.what());
    failure.common = true;
    failure.lost_rank = lost.rank();
    return failure;
  } catch (const Aborted& aborted) {
    Failure failure = plain(aborted.exit_code(), aborted.what());
    failure.common = aborted.is_common();
    failure.aftermath = !failure.common;
    return failure;
  } catch (const Error& known) {
    Failure failure = plain(known.exit_code(), known.what());
    failure.common = known.is_common() || dynamic_cast<const CollectiveMismatch*>(&known) != nullptr ||
                     dynamic_cast<const Timeout*>(&known) != nullptr;
    return failure;
  } catch (const c10::OutOfMemoryError& torch) {
    return plain(ExitCode::kOsResource, first_line_of(torch) + kFitIn);
  } catch (const c10::Error& torch) {
    const std::string text = torch.what_without_backtrace();
    if (text.find("can't allocate memory") != std::string::npos ||
        text.find("not enough memory") != std::string::npos) {
      return plain(ExitCode::kOsResource, "out of memory: " + first_line_of(torch) +
                                              "\n  fix: use a smaller train.global_batch or fewer ranks");
    }
    if (text.find("does not have a deterministic implementation") != std::string::npos ||
        text.find("CUBLAS_WORKSPACE_CONFIG") != std::string::npos) {
      return plain(ExitCode::kConfiguration,
                   "train.deterministic: " + first_line_of(torch) +
                       "\n  fix: leave train.deterministic out, or use another operator in the task");
    }
    if (text.find("CUDA error") != std::string::npos)
      return plain(ExitCode::kBug, fmt::format("LibTorch: {}\n  fix: {}", first_line_of(torch), device::kFixOfFault));
    return plain(ExitCode::kBug, bug("LibTorch: " + first_line_of(torch)));
  } catch (const std::bad_alloc&) {
    return plain(ExitCode::kOsResource, "out of memory\n  fix: use a smaller train.global_batch or fewer ranks");
  } catch (const std::exception& unknown) {
    return plain(ExitCode::kBug, bug(unknown.what()));
  } catch (...) {
    return plain(ExitCode::kBug, bug("an exception of unknown type"));
  }
}

int report(const Failure& failure, int rank, int world_size) {
  const int teller = failure.lost_rank == 0 ? 1 : 0;
  const bool own = !failure.common && !failure.aftermath;
  if (!own && (failure.aftermath || rank != teller)) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      if (stop_requested()) return failure.exit_code;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  const bool tells_where = own && world_size > 1;
  const std::string line =
      tells_where ? fmt::format("error: rank {} of {} ({}): {}\n", rank, world_size, base::host_name(), failure.text)
                  : fmt::format("error: {}\n", failure.text);
  // One call, so that the lines of one error stay together. If stderr is closed, the error cannot be shown.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  return failure.exit_code;
}

}  // namespace reigen::train
