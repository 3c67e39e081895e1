#include "base/error_record.h"

#include <fmt/format.h>

#include <new>
#include <system_error>

#include "base/text.h"

namespace reigen::base {

namespace {

using Kind = ErrorRecord::Kind;

template <class Leaf>
bool is(const Error& error) {
  return dynamic_cast<const Leaf*>(&error) != nullptr;
}

// NoRoom is derived from IoError, so NoRoom is tested first.
Kind kind_of(const Error& error) {
  if (is<InvalidArgument>(error)) return Kind::kInvalidArgument;
  if (is<Timeout>(error)) return Kind::kTimeout;
  if (is<PeerLost>(error)) return Kind::kPeerLost;
  if (is<CollectiveMismatch>(error)) return Kind::kCollectiveMismatch;
  if (is<Aborted>(error)) return Kind::kAborted;
  if (is<NoRoom>(error)) return Kind::kNoRoom;
  if (is<IoError>(error)) return Kind::kIoError;
  if (is<DataError>(error)) return Kind::kDataError;
  if (is<BackendError>(error)) return Kind::kBackendError;
  if (is<InternalError>(error)) return Kind::kInternalError;
  return Kind::kError;
}

template <class Leaf>
[[noreturn]] void throw_marked(Leaf error, bool common) {
  if (common) error.mark_common();
  throw error;
}

// Returns the next word, and removes the word and the space after it from `text`.
std::string_view take_word(std::string_view& text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) throw InternalError(fmt::format("\"{}\" is not an error's text", text));
  const std::string_view word = text.substr(0, space);
  text.remove_prefix(space + 1);
  return word;
}

int take_number(std::string_view& text) {
  const std::string_view all = text;
  const auto number = parse<int>(take_word(text));
  if (!number) throw InternalError(fmt::format("\"{}\" is not an error's text", all));
  return *number;
}

}  // namespace

ErrorRecord record_of(const Error& error) {
  const auto* const lost = dynamic_cast<const PeerLost*>(&error);
  return {kind_of(error), error.exit_code(), lost != nullptr ? lost->rank() : -1, error.what()};
}

ErrorRecord record_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return record_of(known);
  } catch (const std::bad_alloc&) {
    return {Kind::kError, ExitCode::kOsResource, -1, "out of memory"};
  } catch (const std::system_error& system) {
    return {Kind::kIoError, ExitCode::kIo, -1, system.what()};
  } catch (const std::exception& unknown) {
    return {Kind::kInternalError, ExitCode::kBug, -1, unknown.what()};
  } catch (...) {
    return {Kind::kInternalError, ExitCode::kBug, -1, "an exception of unknown type"};
  }
}

std::string encode(const ErrorRecord& record) {
  return fmt::format("{} {} {} {}", static_cast<int>(record.code), record.rank, static_cast<int>(record.kind),
                     record.text);
}

ErrorRecord decode_error(std::string_view text) {
  const auto code = static_cast<ExitCode>(take_number(text));
  const int rank = take_number(text);
  const std::size_t space = text.find(' ');
  const auto kind = parse<int>(text.substr(0, space));
  const bool is_known =
      space != std::string_view::npos && kind && *kind >= 0 && *kind <= static_cast<int>(Kind::kInternalError);
  if (!is_known) return {Kind::kError, code, rank, std::string(text)};
  return {static_cast<Kind>(*kind), code, rank, std::string(text.substr(space + 1))};
}

void raise(const ErrorRecord& r, bool common) {
  switch (r.kind) {
    case Kind::kInvalidArgument: throw_marked(InvalidArgument(r.text, r.code), common);
    case Kind::kTimeout: throw_marked(Timeout(r.text), common);
    case Kind::kPeerLost: throw_marked(PeerLost(r.rank, r.text), common);
    case Kind::kCollectiveMismatch: throw_marked(CollectiveMismatch(r.text), common);
    case Kind::kAborted: throw_marked(Aborted(r.text), common);
    case Kind::kIoError: throw_marked(IoError(r.text, r.code), common);
    case Kind::kNoRoom: throw_marked(NoRoom(r.text, r.code), common);
    case Kind::kDataError: throw_marked(DataError(r.text), common);
    case Kind::kBackendError: throw_marked(BackendError(r.text, r.code), common);
    case Kind::kInternalError: throw_marked(InternalError(r.text), common);
    case Kind::kError: break;
  }
  throw_marked(Error(r.code, r.text), common);
}

}  // namespace reigen::base
