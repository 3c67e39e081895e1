// Exchanges strings of bytes, whose lengths may differ between ranks. Use it for serialised objects, such as a
// configuration or a vocabulary.
//
//   std::ostringstream text;
//   torch::save(vocabulary, text);
//   std::string same = reigen::broadcast_bytes(text.str(), 0, world);
//
// All functions are blocking. Each function makes two collectives; the first sends 8 bytes per rank. The functions
// throw the errors of Communicator's operations; the text of each error contains `tag`.
// Thread rule: each rank makes these calls and its other calls of the group one after the other, in the same order as
// all other ranks.
#pragma once

#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// Returns the root's bytes on every rank. The `bytes` that other ranks pass are ignored.
std::string broadcast_bytes(std::string bytes, int root, Communicator world, const std::string& tag = "bytes");

// Returns the bytes of all ranks on every rank: result[q] is what rank q passed.
std::vector<std::string> all_gather_bytes(const std::string& bytes, Communicator world,
                                          const std::string& tag = "bytes");

}  // namespace reigen::comm

namespace reigen {
using comm::all_gather_bytes;
using comm::broadcast_bytes;
}  // namespace reigen
