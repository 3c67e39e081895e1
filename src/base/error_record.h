// An error as a value, which a rank can send to other ranks. It keeps the error's type: each rank can then catch what
// the first rank could.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "reigen/base/error.h"

namespace reigen::base {

struct ErrorRecord {
  // The leaves of error.h; kError is none of them.
  enum class Kind : std::uint8_t {
    kError,
    kInvalidArgument,
    kTimeout,
    kPeerLost,
    kCollectiveMismatch,
    kAborted,
    kIoError,
    kNoRoom,
    kDataError,
    kBackendError,
    kInternalError,
  };
  Kind kind = Kind::kError;
  ExitCode code = ExitCode::kBug;
  int rank = -1;  // of PeerLost
  std::string text = {};

  bool operator==(const ErrorRecord&) const = default;
};

// Of exceptions that are none of ours: no memory is an Error of code 71, what the file system refused an IoError of
// code 74, all others are InternalErrors (70).
ErrorRecord record_of(const Error& error);
ErrorRecord record_of(const std::exception_ptr& error);

// Text, and back. The first words are the exit code and the rank, then the type; text of an older build, which has no
// type, is an Error. Throws InternalError for other text. A type derived from a leaf of error.h becomes that leaf.
std::string encode(const ErrorRecord& record);
ErrorRecord decode_error(std::string_view text);

// The error again, with its type. `common`: as Error::is_common().
[[noreturn]] void raise(const ErrorRecord& record, bool common = false);

}  // namespace reigen::base
