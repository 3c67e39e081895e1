#include "c/error.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace reigen::c {

namespace {

struct LastError {
  std::string text;
  const char* shown = "";  // points into `text`, or to a constant if there was no memory for the text
  reigen_error kind = REIGEN_ERROR_NONE;
  int rank = -1;
};

LastError& last_error() noexcept {
  thread_local LastError error;
  return error;
}

constexpr bool is_same(ExitCode code, reigen_status status) { return static_cast<int>(code) == status; }
static_assert(is_same(ExitCode::kOk, REIGEN_OK) && is_same(ExitCode::kBadData, REIGEN_BAD_DATA) &&
              is_same(ExitCode::kInputMissing, REIGEN_INPUT_MISSING) &&
              is_same(ExitCode::kUnavailable, REIGEN_UNAVAILABLE) && is_same(ExitCode::kBug, REIGEN_BUG));
static_assert(is_same(ExitCode::kOsResource, REIGEN_OS_RESOURCE) &&
              is_same(ExitCode::kOutputLocked, REIGEN_OUTPUT_LOCKED) && is_same(ExitCode::kIo, REIGEN_IO) &&
              is_same(ExitCode::kJobMismatch, REIGEN_JOB_MISMATCH));
static_assert(is_same(ExitCode::kPermission, REIGEN_PERMISSION) &&
              is_same(ExitCode::kConfiguration, REIGEN_CONFIGURATION) &&
              is_same(ExitCode::kPeerLost, REIGEN_PEER_LOST));

reigen_status remember(reigen_error kind, ExitCode code, const char* text, int rank = -1) noexcept {
  LastError& last = last_error();
  last.kind = kind;
  last.rank = rank;
  try {
    last.text = text;
    last.shown = last.text.c_str();
  } catch (const std::bad_alloc&) {
    last.shown = "an error, and no memory left for its text";
  }
  return static_cast<reigen_status>(code);
}

}  // namespace

reigen_status remember_current_error() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& e) {
    return remember(REIGEN_ERROR_INVALID_ARGUMENT, e.exit_code(), e.what());
  } catch (const Timeout& e) {
    return remember(REIGEN_ERROR_TIMEOUT, e.exit_code(), e.what());
  } catch (const PeerLost& e) {
    return remember(REIGEN_ERROR_PEER_LOST, e.exit_code(), e.what(), e.rank());
  } catch (const CollectiveMismatch& e) {
    return remember(REIGEN_ERROR_MISMATCH, e.exit_code(), e.what());
  } catch (const Aborted& e) {
    return remember(REIGEN_ERROR_ABORTED, e.exit_code(), e.what());
  } catch (const IoError& e) {
    return remember(REIGEN_ERROR_IO, e.exit_code(), e.what());
  } catch (const BackendError& e) {
    return remember(REIGEN_ERROR_BACKEND, e.exit_code(), e.what());
  } catch (const Error& e) {
    return remember(REIGEN_ERROR_OTHER, e.exit_code(), e.what());
  } catch (const std::bad_alloc&) {
    return remember(REIGEN_ERROR_IO, ExitCode::kOsResource, "no memory left\n  fix: use fewer or smaller buffers");
  } catch (const std::system_error& e) {  // for example: a thread could not be started
    return remember(REIGEN_ERROR_IO, ExitCode::kOsResource, e.what());
  } catch (const std::exception& e) {
    return remember(REIGEN_ERROR_OTHER, ExitCode::kBug, e.what());
  } catch (...) {
    return remember(REIGEN_ERROR_OTHER, ExitCode::kBug, "an exception of unknown type");
  }
}

void throw_null(const char* function, const char* what, const char* expected) {
  throw InvalidArgument(Report{.what = fmt::format("[{}] no {}", function, what), .got = "NULL", .expected = expected});
}

}  // namespace reigen::c

const char* reigen_error_message() { return reigen::c::last_error().shown; }
reigen_error reigen_error_kind() { return reigen::c::last_error().kind; }
int reigen_error_rank() { return reigen::c::last_error().rank; }
