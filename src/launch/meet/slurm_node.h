// Asks Slurm for a node's address, for nodes that the name service does not know.
#pragma once

#include <string>

namespace reigen::launch {

// The address of a node as `scontrol show node` prints it (NodeAddr), which is the same on every node. Empty where
// scontrol is missing, does not answer within 10 seconds or knows only the node's name.
std::string slurm_node_address(const std::string& node);

// NodeAddr in the output of `scontrol --oneliner show node`; empty if it is not there.
std::string parse_node_address(const std::string& text);

}  // namespace reigen::launch
