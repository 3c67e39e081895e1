#include "c/options.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "c/error.h"

namespace reigen::c {

namespace {

using std::chrono::milliseconds;

// The size of the struct in the first version. The struct of every caller is at least as large.
constexpr std::size_t first_size(const reigen_init_options&) {
  return offsetof(reigen_init_options, keep_memory) + sizeof(int);
}
constexpr std::size_t first_size(const reigen_comm_options&) {
  return offsetof(reigen_comm_options, heartbeat_timeout_ms) + sizeof(std::int64_t);
}
constexpr std::size_t first_size(const reigen_call_options&) {
  return offsetof(reigen_call_options, factor) + sizeof(double);
}

reigen_init_options defaults(const reigen_init_options*) {
  return {.struct_size = 0,
          .name = nullptr,
          .backend = nullptr,
          .timeout_ms = 0,
          .keep_memory = 1,
          .network = nullptr,
          .segments = 0,
          .connections = 0,
          .device = nullptr,
          .device_backend = nullptr};
}

reigen_comm_options defaults(const reigen_comm_options*) {
  const comm::GroupOptions cpp;
  return {.struct_size = 0,
          .rank = cpp.rank,
          .size = cpp.size,
          .store = nullptr,
          .name = nullptr,
          .backend = nullptr,
          .join_timeout_ms = cpp.join_timeout.count(),
          .report_after_ms = cpp.report_after.count(),
          .timeout_ms = cpp.timeout.count(),
          .heartbeat_timeout_ms = cpp.heartbeat_timeout.count(),
          .network = nullptr,
          .segments = cpp.segments,
          .connections = cpp.connections,
          .device = nullptr,
          .device_backend = nullptr};
}

reigen_call_options defaults(const reigen_call_options*) {
  return {.struct_size = 0, .work = nullptr, .only_caller = 0, .tag = nullptr, .factor = 1, .stream = nullptr};
}

// Fills the struct with the defaults. Members that this library does not know are set to zero, which read() accepts.
template <class Options>
reigen_status fill(const char* function, Options* options, std::size_t bytes) noexcept {
  return guarded([&] {
    not_null(options, function, "options", "where to write them");
    Options known = defaults(options);
    REIGEN_CHECK(bytes >= first_size(known), "[{}] too few bytes\n  got: {}   expected: sizeof of the struct, {}",
                 function, bytes, sizeof(Options));
    known.struct_size = bytes;
    std::memset(options, 0, bytes);
    std::memcpy(options, &known, std::min(bytes, sizeof known));
  });
}

template <class Options>
Options read(const char* function, const char* filler, const Options* options) {
  Options known = defaults(options);
  if (options == nullptr) return known;
  const std::size_t bytes = options->struct_size;
  REIGEN_CHECK(bytes >= first_size(known) && bytes < 4096,
               "[{}] the options have no size\n  got: struct_size {}   expected: {}\n  fix: fill them with {} first",
               function, bytes, sizeof(Options), filler);
  const auto* raw = reinterpret_cast<const std::byte*>(options);
  for (std::size_t i = sizeof(Options); i < bytes; ++i) {
    REIGEN_CHECK(raw[i] == std::byte(0),
                 "[{}] an option that this library does not have\n  got: a value at byte {}   expected: at most {} "
                 "bytes\n  fix: a newer libreigen_c, or leave that option alone",
                 function, i, sizeof(Options));
  }
  std::memcpy(&known, raw, std::min(bytes, sizeof known));
  return known;
}

void set_text(std::string& value, const char* text) {
  if (text != nullptr) value = text;
}

}  // namespace

InitOptions to_init_options(const reigen_init_options* options) {
  const reigen_init_options read_options = read("reigen_init", "reigen_init_options_default", options);
  InitOptions cpp;
  set_text(cpp.name, read_options.name);
  set_text(cpp.backend, read_options.backend);
  REIGEN_CHECK(read_options.timeout_ms >= 0, "[reigen_init] timeout_ms\n  got: {}   expected: 0 or more",
               read_options.timeout_ms);
  cpp.timeout = milliseconds(read_options.timeout_ms);
  cpp.keep_memory = read_options.keep_memory != 0;
  set_text(cpp.network, read_options.network);
  REIGEN_CHECK(read_options.segments >= 0 && read_options.connections >= 0,
               "[reigen_init] segments and connections\n  got: {} and {}   expected: 0 or more", read_options.segments,
               read_options.connections);
  cpp.segments = read_options.segments;
  cpp.connections = read_options.connections;
  if (read_options.device != nullptr) cpp.device = parse_device(read_options.device);
  set_text(cpp.device_backend, read_options.device_backend);
  return cpp;
}

reigen_comm_options to_comm_options(const reigen_comm_options* options) {
  return read("reigen_comm_create", "reigen_comm_options_default", options);
}

reigen_call_options to_call_options(const char* function, const reigen_call_options* options) {
  return read(function, "reigen_call_options_default", options);
}

comm::CallOptions to_cpp(const reigen_call_options& options, const Device& device) {
  comm::CallOptions cpp;
  if (options.stream != nullptr) {
    REIGEN_CHECK(
        !device.is_cpu(),
        "a call has a stream, but its group has no GPU\n  fix: leave stream NULL, or set device in the options "
        "of the group");
    cpp.after = {.device = device, .handle = options.stream};
  }
  set_text(cpp.tag, options.tag);
  cpp.factor = options.factor;
  return cpp;
}

comm::Progress progress_of(const reigen_call_options& options) {
  return options.only_caller != 0 ? comm::Progress::kCaller : comm::Progress::kThread;
}

comm::GroupOptions to_cpp(const reigen_comm_options& options) {
  comm::GroupOptions cpp;
  cpp.rank = options.rank;
  cpp.size = options.size;
  set_text(cpp.name, options.name);
  set_text(cpp.backend, options.backend);
  set_text(cpp.network, options.network);
  cpp.segments = options.segments;
  cpp.connections = options.connections;
  if (options.device != nullptr) cpp.device = parse_device(options.device);
  set_text(cpp.device_backend, options.device_backend);
  const auto set_time = [](milliseconds& time, std::int64_t ms, const char* what) {
    REIGEN_CHECK(ms > 0, "[reigen_comm_create] {}\n  got: {}   expected: more than 0", what, ms);
    time = milliseconds(ms);
  };
  set_time(cpp.join_timeout, options.join_timeout_ms, "join_timeout_ms");
  set_time(cpp.report_after, options.report_after_ms, "report_after_ms");
  set_time(cpp.timeout, options.timeout_ms, "timeout_ms");
  set_time(cpp.heartbeat_timeout, options.heartbeat_timeout_ms, "heartbeat_timeout_ms");
  // A value of the right type may be out of range, so the ranges are checked too.
  Fields rows;
  describe(rows, cpp);
  for (const Field& row : rows.rows) {
    if (row.key.ends_with("timeout") || row.key == "report_after") continue;  // checked above
    const std::string text = row.text();
    REIGEN_CHECK(row.set(text), "[reigen_comm_create] {}\n  got: {}   expected: {}", row.key, text, row.expected());
  }
  return cpp;
}

}  // namespace reigen::c

reigen_status reigen_init_options_default(reigen_init_options* options, size_t bytes) {
  return reigen::c::fill("reigen_init_options_default", options, bytes);
}

reigen_status reigen_comm_options_default(reigen_comm_options* options, size_t bytes) {
  return reigen::c::fill("reigen_comm_options_default", options, bytes);
}

reigen_status reigen_call_options_default(reigen_call_options* options, size_t bytes) {
  return reigen::c::fill("reigen_call_options_default", options, bytes);
}
