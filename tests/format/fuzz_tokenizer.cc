// libFuzzer: any bytes are either a tokenizer, which encodes and decodes, or a DataError.
#include "format/memory_file.h"
#include "reigen/base/error.h"
#include "reigen/format/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const reigen::tests::MemoryFile file(data, size);
  try {
    const auto tokenizer = reigen::format::Tokenizer::read(file.path());
    tokenizer.decode(tokenizer.encode("It's <s> \xff 12\n the<|endoftext|>"));
  } catch (const reigen::DataError&) {
  } catch (const reigen::InvalidArgument&) {  // a file of tiktoken with an unknown number of tokens
  }
  return 0;
}
