// This build has no zstd.
#include "container/libraries.h"
#include "container/meta.h"

namespace reigen::container {

void require_zstd() { fail_not_built_in("zstd", "libzstd-dev"); }
std::string_view zstd_version() { return {}; }

std::vector<std::byte> zstd_packed(std::span<const std::byte>) { fail_not_built_in("zstd", "libzstd-dev"); }
std::vector<std::byte> zstd_unpacked(std::span<const std::byte>, std::uint64_t, const std::string&) {
  fail_not_built_in("zstd", "libzstd-dev");
}

}  // namespace reigen::container
