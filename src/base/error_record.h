// An error as a value, which a rank can send to other ranks. It keeps the error's type, so that every rank can catch
// the same type as the rank in which the error arose.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "reigen/base/error.h"

namespace reigen::base {

struct ErrorRecord {
  // One kind for each type that error.h derives from Error. `kError` means any other Error.
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
  int rank = -1;  // the lost rank of a PeerLost; -1 for all other kinds
  std::string text = {};

  bool operator==(const ErrorRecord&) const = default;
};

// The record of an exception. An exception that is no reigen::Error is recorded as follows: std::bad_alloc as an Error
// with exit code 71, std::system_error as an IoError with exit code 74, any other exception as an InternalError with
// exit code 70.
ErrorRecord record_of(const Error& error);
ErrorRecord record_of(const std::exception_ptr& error);

// encode() converts a record to text, and decode_error() converts text to a record. The text begins with the exit code,
// the rank and the type. A rank of an older build sends text without a type, which is decoded as an Error. For text of
// any other form decode_error() throws InternalError. A type that a program derives from a type of error.h is recorded
// as the type of error.h.
std::string encode(const ErrorRecord& record);
ErrorRecord decode_error(std::string_view text);

// Throws the error of the record, with its type. `common`: whether every rank of the job throws this error at the same
// place; the thrown error's is_common() returns this value.
[[noreturn]] void raise(const ErrorRecord& record, bool common = false);

}  // namespace reigen::base
