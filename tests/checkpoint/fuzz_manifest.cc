// libFuzzer: any bytes are either a manifest or a DataError (76 for another version). No fuzzer finds a right hash, so
// the second round corrects the hash to reach the code after that check. A manifest has exactly one text.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "reigen/base/error.h"
#include "reigen/checkpoint/manifest.h"
#include "reigen/format/hash.h"

namespace {

using nlohmann::json;

void read(const std::string& text) {
  namespace ck = reigen::checkpoint;
  try {
    const ck::Manifest manifest = ck::from_text(text, "fuzz");
    if (ck::to_text(manifest) != text) std::abort();
    ck::check_coverage(manifest, "fuzz");
  } catch (const reigen::DataError&) {
  } catch (const reigen::Error& error) {
    if (error.exit_code() != reigen::ExitCode::kJobMismatch) std::abort();
  }
}

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  const auto shallow = [](int depth, json::parse_event_t, json&) {
    if (depth > 20) throw std::length_error("deep");
    return true;
  };
  try {
    const json content = json::parse(text, shallow, false);
    if (!content.is_object()) return 0;
    const std::string plain = dump(content, -1);
    const auto hash = reigen::format::hash_text(reigen::format::hash64(plain.data(), plain.size()));
    read(dump({{"content", content}, {"xxh64", hash}}, 1) + '\n');
  } catch (const std::length_error&) {
  }
  return 0;
}
