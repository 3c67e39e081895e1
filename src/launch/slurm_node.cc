#include "launch/slurm_node.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>

namespace reigen::launch {

std::string parse_node_address(const std::string& text) {
  const std::string key = " NodeAddr=";
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

std::string slurm_node_address(const std::string& node) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (node.empty() || node.front() == '-' || node.find_first_not_of(plain) != std::string::npos) return {};
  // `timeout`: scontrol waits long for a controller that does not answer.
  const std::string command = fmt::format("timeout 10 scontrol --oneliner show node {} 2>/dev/null", node);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "re"), &::pclose);
  if (!pipe) return {};
  std::string text;
  std::array<char, 4096> part;
  for (std::size_t count = 0; (count = std::fread(part.data(), 1, part.size(), pipe.get())) > 0;) {
    text.append(part.data(), count);
  }
  const std::string address = parse_node_address(text);
  return address == node ? "" : address;
}

}  // namespace reigen::launch
