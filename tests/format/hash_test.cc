#include "reigen/format/hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "format/temporary_folder.h"

namespace reigen::format::hash_test {
namespace {

std::uint64_t of(std::string_view text, std::uint64_t seed = 0) { return hash64(text.data(), text.size(), seed); }

TEST(Hash64, KnownTexts) {
  EXPECT_EQ(hash_text(of("")), "ef46db3751d8e999");
  EXPECT_EQ(hash_text(of("a")), "d24ec4f1a98c6e5b");
  EXPECT_EQ(hash_text(of("abc")), "44bc2cf5ad770999");
  EXPECT_EQ(hash_text(of("Nobody inspects the spammish repetition")), "fbcea83c8a378bf1");
}

// The buffer and the expected values of xxHash's own sanity check (tests/sanity_test in its repository).
TEST(Hash64, SanityCheckOfTheReference) {
  constexpr std::uint64_t kPrime32 = 2654435761u;
  std::string buffer;
  std::uint64_t state = kPrime32;
  for (int i = 0; i < 222; ++i) {
    buffer.push_back(static_cast<char>(state >> 56));
    state *= 11400714785074694797u;
  }
  const auto first = [&](std::size_t n) { return std::string_view(buffer).substr(0, n); };
  EXPECT_EQ(of(first(0), kPrime32), 0xAC75FDA2929B17EFu);
  EXPECT_EQ(of(first(1)), 0xE934A84ADB052768u);
  EXPECT_EQ(of(first(1), kPrime32), 0x5014607643A9B4C3u);
  EXPECT_EQ(of(first(4)), 0x9136A0DCA57457EEu);
  EXPECT_EQ(of(first(14)), 0x8282DCC4994E35C8u);
  EXPECT_EQ(of(first(14), kPrime32), 0xC3BD6BF63DEB6DF0u);
  EXPECT_EQ(of(first(222)), 0xB641AE8CB691C174u);
  EXPECT_EQ(of(first(222), kPrime32), 0x20CB8AB7AE10C14Au);
}

TEST(Hash64, CutsDoNotMatter) {
  std::string text(300, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37 + 11);
  for (std::size_t piece = 1; piece <= 100; ++piece) {
    Hash64 hash(7);
    for (std::size_t at = 0; at < text.size(); at += piece) {
      hash.update(text.data() + at, std::min(piece, text.size() - at));
      EXPECT_EQ(hash.value(), of(text.substr(0, at + piece), 7)) << "pieces of " << piece << " at " << at;
    }
  }
}

TEST(HashFile, IsThatOfItsBytes) {
  const tests::TemporaryFolder folder;
  const std::string text(1'000'003, 'x');
  const FileHash hash = hash_file(folder.write("x", text));
  EXPECT_EQ(hash.bytes, text.size());
  EXPECT_EQ(hash.hash, of(text));
}

}  // namespace
}  // namespace reigen::format::hash_test
