// What is said of ranks that are lost, late or missing: the same words whichever backend noticed it.
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

// `who` died, left or the like (`how`), while the others wait for `what`.
Report lost_rank(const std::string& who, const std::string& how, const std::string& group, const std::string& last_call,
                 const std::string& what);
// A `how` for lost_rank().
std::string silent_for(std::chrono::nanoseconds silence);

// `what` has waited too long for ranks that live, of which the first last did `last_call`.
Report absent_ranks(const std::string& what, std::chrono::nanoseconds waited, const std::vector<int>& absent,
                    const std::string& last_call);
// The same before it has been too long, as a warning.
void warn_of_absent(const std::string& what, std::chrono::nanoseconds waited, const std::vector<int>& absent,
                    const std::string& who, const std::string& last_call, std::chrono::nanoseconds timeout);

// While a group forms.
std::string died_while_forming(const std::string& who, const GroupOptions& options);
Report joined_twice(const GroupOptions& options);
Report incomplete_group(const GroupOptions& options, const std::vector<int>& missing);
// Throws BackendError (job mismatch) when a rank speaks another version of `what`, a protocol.
void check_same_version(const std::string& what, int rank, std::uint32_t version, std::uint32_t expected);
// Throws InvalidArgument when a rank was told another number of ranks.
void check_same_size(const GroupOptions& options, int rank, int ranks);

}  // namespace reigen::comm
