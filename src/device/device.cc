#include "reigen/device/device.h"

#include "base/check.h"
#include "base/text.h"

namespace reigen {

Device parse_device(const std::string& text) {
  if (text == "cpu") return Device::cpu();
  if (text == "cuda") return Device::cuda();
  constexpr std::string_view kPrefix = "cuda:";
  const auto index = text.starts_with(kPrefix) ? base::parse<int>(text.substr(kPrefix.size())) : std::nullopt;
  REIGEN_CHECK(index && *index >= 0, "unknown device\n  got: \"{}\"   expected: cpu, cuda or cuda:N, N from 0", text);
  return Device::cuda(*index);
}

std::string to_string(const Device& device) {
  if (device.is_cpu()) return "cpu";
  return device.index < 0 ? "cuda" : fmt::format("cuda:{}", device.index);
}

}  // namespace reigen
