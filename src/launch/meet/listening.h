// Where rank 0 listens, and where the others look for it: both from what all ranks were told alike.
#pragma once

#include <string>
#include <vector>

#include "reigen/launch/environment.h"

namespace reigen::launch {

// Of rank 0: numeric addresses of this machine, at least one, each once; the first is rank 0's own way to its store.
// Those that master_address means here, and
//   all ranks here, or an address that is the loopback for everybody    the loopback
//   else                                                                every address of this machine: others may be
//                                                                       told another one by the same name
// "0.0.0.0" and "::" only where they are what was given. Warns where the name leads elsewhere or nowhere and is what
// the others look for.
std::vector<std::string> places_to_listen(const Environment& environment);

// Of the other ranks: hosts in the order in which they are tried. The loopback comes first where the launcher says that
// rank 0 is on this machine.
std::vector<std::string> places_to_look(const Environment& environment);

// An address that means the machine of whoever reads it: all who were told it are on one. In a pod of Kubernetes
// `localhost` is none: its operators tell it the pod of rank 0, and the others that pod's name.
bool means_one_host(const std::string& address);

// Numeric addresses of this machine, without the loopback.
std::vector<std::string> addresses_of_this_machine();

// The name of the socket at which the ranks of a job on this machine meet.
std::string socket_of_job(const std::string& job);

}  // namespace reigen::launch
