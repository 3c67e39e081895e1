// libFuzzer: any bytes are either meta data of a container or a DataError.
#include <cstdlib>

#include "container/meta.h"
#include "container/names.h"
#include "reigen/base/error.h"
#include "reigen/format/hash.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reigen::container;
  std::string text(reinterpret_cast<const char*>(data), size);
  // Mutated texts do not have the right hash, so it is put there.
  const std::string key = "\"hash\": \"";
  if (const auto at = text.rfind(key); at != std::string::npos && at + key.size() + 16 <= text.size()) {
    text.replace(at + key.size(), 16, reigen::format::hash_text(reigen::format::hash64(text.data(), at)));
  }
  try {
    const Meta meta = parse_meta(text, "'input'");
    if (meta.count < 1 || meta.fields.empty() || meta.fields.size() != meta.stored.size()) std::abort();
    candidates_of(meta);
    parse_hashes({}, meta, "'input'");
  } catch (const reigen::DataError&) {
  }
  return 0;
}
