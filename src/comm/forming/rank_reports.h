// The texts of errors and warnings about ranks that are lost, late or missing. They are the same for all backends.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/comm/options.h"

namespace reigen::comm {

// "rank 2 (host a, pid 17)".
std::string describe_rank(int rank, const std::string& host, long pid);

// The report of a lost rank. `who` names the rank, as describe_rank() does. `how` says that the rank died, left the
// group or is silent. `last_call` describes its last call. `what` describes the call in which the other ranks wait for
// this rank.
Report lost_rank(const std::string& who, const std::string& how, const std::string& group, const std::string& last_call,
                 const std::string& what);
// The text for `how` of lost_rank() if the rank has been silent for `silence`.
std::string silent_for(std::chrono::nanoseconds silence);

// The report of a call that has waited too long for the ranks `absent`, which are alive. `what` describes the call.
// `last_call` describes the last call of the first absent rank.
Report absent_ranks(const std::string& what, std::chrono::nanoseconds waited, const std::vector<int>& absent,
                    const std::string& last_call);
// Logs a warning that the call waits for the ranks `absent`, and that it fails when the wait reaches `timeout`. `who`
// names the first absent rank.
void warn_of_absent(const std::string& what, std::chrono::nanoseconds waited, const std::vector<int>& absent,
                    const std::string& who, const std::string& last_call, std::chrono::nanoseconds timeout);

// Texts and checks for errors while a group forms.
std::string died_while_forming(const std::string& who, const GroupOptions& options);
Report joined_twice(const GroupOptions& options);
Report incomplete_group(const GroupOptions& options, const std::vector<int>& missing);
// Throws BackendError (exit code kJobMismatch) unless `version`, the protocol version of rank `rank`, is `expected`.
// `what` names the protocol.
void check_same_version(const std::string& what, int rank, std::uint32_t version, std::uint32_t expected);
// Throws InvalidArgument unless `ranks`, the group size with which `rank` was started, is this rank's group size.
void check_same_size(const GroupOptions& options, int rank, int ranks);

}  // namespace reigen::comm
