// Times saves of one rank's tensors, for scripts/bench/checkpoint: how long the caller waits, and when the bytes are on
// the disk.
//   checkpoint_save DIRECTORY MEBIBYTES   reads lines from standard input, and answers each with a time in seconds:
//     memcpy    of a copy of as many bytes; after the first time, into memory that was written before
//     prepare   until the call returns; a thread takes the memory for the first save's copy meanwhile
//     save      "STALL WHOLE" of an asynchronous save: until save() returns, and until the bytes are on the disk
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/checkpoint/saver.h"

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kTensors = 64;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Fills with values that no file system can compress.
void fill(Bytes& bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i + sizeof seed <= bytes.size(); i += sizeof seed) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    std::memcpy(&bytes[i], &seed, sizeof seed);
  }
}

int serve(const std::string& directory, std::size_t mebibytes) {
  const std::size_t bytes = (mebibytes << 20) / kTensors;
  std::vector<Bytes> tensors(kTensors, Bytes(bytes));
  const auto target = std::make_unique_for_overwrite<std::byte[]>(bytes * kTensors);
  reigen::checkpoint::Contents contents;
  for (std::size_t i = 0; i < kTensors; ++i) {
    fill(tensors[i], i + 1);
    const reigen::checkpoint::Shape shape{static_cast<std::int64_t>(bytes / sizeof(float))};
    contents["model"].push_back({.name = "t" + std::to_string(i),
                                 .shape = shape,
                                 .part = reigen::checkpoint::whole(shape),
                                 .bytes = tensors[i]});
  }
  reigen::checkpoint::Saver saver(directory, reigen::Communicator(), {.keep = 1});
  std::int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = Clock::now();
    if (line == "memcpy") {
      for (std::size_t i = 0; i < kTensors; ++i) std::memcpy(&target[i * bytes], tensors[i].data(), bytes);
      std::cout << since(begin) << "\n" << std::flush;
    } else if (line == "prepare") {
      saver.prepare(contents);
      std::cout << since(begin) << "\n" << std::flush;
    } else if (line == "save") {
      saver.save({.step = ++step}, contents);
      const double stall = since(begin);
      saver.wait();
      std::cout << stall << " " << since(begin) << "\n" << std::flush;
    } else {
      std::cerr << "checkpoint_save: \"" << line << "\" is none of memcpy, prepare and save\n";
      return 2;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t mebibytes = 0;
  const std::string_view text = argc == 3 ? argv[2] : "";
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), mebibytes);
  if (argc != 3 || wrong != std::errc() || end != text.data() + text.size() || mebibytes == 0) {
    std::cerr << "usage: checkpoint_save DIRECTORY MEBIBYTES\n";
    return 2;
  }
  try {
    return serve(argv[1], mebibytes);
  } catch (const std::exception& error) {
    std::cerr << "checkpoint_save: " << error.what() << "\n";
    return 1;
  }
}
