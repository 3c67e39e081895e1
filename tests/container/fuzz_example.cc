// libFuzzer: any bytes are either a tf.train.Example, whose lists can be read, or none.
#include <cstdlib>

#include "container/sample.h"
#include "container/tfrecord/example.h"
#include "container/tfrecord/records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reigen::container;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto offsets = parse_record_index(text, size); offsets && offsets->back() != size) std::abort();
  const auto features = parse_example(text);
  if (!features) return 0;
  for (const Feature& feature : *features) {
    bytes_in(feature.list);
    floats_in(feature.list);
    const auto numbers = integers_in(feature.list);
    // A number of eight bytes takes at least one byte of the message.
    if (numbers && numbers->size() > 8 * size) std::abort();
  }
  return 0;
}
