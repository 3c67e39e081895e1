// Errors: one base class, and one derived class for each way in which a caller can react.
//
// Every message says what happened, which values were got and expected, and what to do next:
//   [all_reduce] rank 2 of 4: count differs
//     got: 100   expected: 101 (rank 0)
//     fix: call the same operation with the same count on every rank
// Each error has an exit code. A program that does not catch the error should end with this code (docs/errors.md).
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <stdexcept>
#include <string>

namespace reigen {

// Exit codes of all programs of Reigen; 128 + N means that signal N ended the program.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,              // wrong command line
  kBadData = 65,           // an input is damaged or of the wrong kind
  kInputMissing = 66,      // an input does not exist
  kUnavailable = 69,       // a device or service is missing
  kBug = 70,               // a bug of Reigen, or an exception that was not handled
  kOsResource = 71,        // no memory, processes or descriptors left
  kOutputLocked = 73,      // the output exists or is in use
  kIo = 74,                // reading or writing failed
  kStopped = 75,           // stopped on request, resumable
  kJobMismatch = 76,       // a process or a file has another version, or is of another job
  kPermission = 77,        // no permission, or the wrong secret
  kConfiguration = 78,     // an option or an argument is wrong
  kPeerLost = 79,          // another rank died or is unreachable; restartable
  kNotANumber = 80,        // NaN or infinity
  kReplicasDiverged = 81,  // values that must be equal on several ranks differ
  kDoNotRestart = 93,      // tells a launcher that restarts jobs not to restart this one
};

// The parts of an error's message. The message leaves out empty parts.
struct Report {
  std::string what;
  std::string got = {};
  std::string expected = {};
  std::string fix = {};
};

std::string to_string(const Report& report);

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Error(ExitCode code, const Report& report) : Error(code, to_string(report)) {}
  ExitCode exit_code() const noexcept { return code_; }

  // Whether every rank of the job throws this error at the same place. If so, only rank 0 reports it.
  bool is_common() const noexcept { return common_; }
  void mark_common() noexcept { common_ = true; }

 private:
  ExitCode code_;
  bool common_ = false;
};

// An argument or an option is wrong and must be fixed.
struct InvalidArgument : Error {
  explicit InvalidArgument(const std::string& message, ExitCode code = ExitCode::kConfiguration)
      : Error(code, message) {}
  explicit InvalidArgument(const Report& report, ExitCode code = ExitCode::kConfiguration) : Error(code, report) {}
};

// A deadline passed while all ranks were alive.
struct Timeout : Error {
  explicit Timeout(const std::string& message) : Error(ExitCode::kPeerLost, message) {}
  explicit Timeout(const Report& report) : Error(ExitCode::kPeerLost, report) {}
};

// Another rank died, no longer responds, or left the group. The program must rebuild the group and resume from a
// checkpoint. rank() is the number of the lost rank in the group of the failed call, or -1 if the lost rank is not in
// that group.
struct PeerLost : Error {
  PeerLost(int rank, const std::string& message) : Error(ExitCode::kPeerLost, message), rank_(rank) {}
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

// Ranks called different operations, or the same operation with different arguments. The program must be fixed.
struct CollectiveMismatch : Error {
  explicit CollectiveMismatch(const std::string& message) : Error(ExitCode::kConfiguration, message) {}
};

// The group had ended before the call, because of an error on any rank or because of abort(). The text contains the
// first cause.
struct Aborted : Error {
  explicit Aborted(const std::string& message) : Error(ExitCode::kPeerLost, message) {}
};

// A call to the operating system failed. The text names the call and errno.
struct IoError : Error {
  explicit IoError(const std::string& message, ExitCode code = ExitCode::kIo) : Error(code, message) {}
  explicit IoError(const Report& report, ExitCode code = ExitCode::kIo) : Error(code, report) {}
};

// The disk is full, or the user's quota on it is used up. The same write succeeds when there is room again.
struct NoRoom : IoError {
  using IoError::IoError;
};

// A file has wrong contents. The text names the file and the offset.
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::kBadData, message) {}
  explicit DataError(const Report& report) : Error(ExitCode::kBadData, report) {}
};

// A communication backend or a device failed, or this build of Reigen does not support it.
struct BackendError : Error {
  explicit BackendError(const std::string& message, ExitCode code = ExitCode::kUnavailable) : Error(code, message) {}
  explicit BackendError(const Report& report, ExitCode code = ExitCode::kUnavailable) : Error(code, report) {}
};

// A bug of Reigen; please report it.
struct InternalError : Error {
  explicit InternalError(const std::string& message) : Error(ExitCode::kBug, message) {}
};

}  // namespace reigen
