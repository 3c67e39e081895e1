// Numbers and words in text, hashes, and errors as text.
#include "base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <system_error>

#include "base/error_record.h"
#include "base/hash.h"

namespace reigen::base {
namespace {

TEST(Text, ANumberIsTheWholeText) {
  EXPECT_EQ(parse<int>("-12"), -12);
  EXPECT_EQ(parse<std::uint16_t>("65535"), 65535);
  EXPECT_EQ(parse<double>("2.5e1"), 25.0);
  for (const char* text : {"", " 1", "1 ", "+1", "0x1", "1.5", "12a", "99999999999"}) {
    EXPECT_EQ(parse<int>(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse<std::uint16_t>("65536"), std::nullopt);
  EXPECT_EQ(parse<std::uint64_t>("-1"), std::nullopt);
}

TEST(Text, AWordThatIsMeantIsNear) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(nearest("epoch", {"steps", "epochs", "seed"}), "epochs");
  EXPECT_EQ(nearest("nothing", {"steps", "epochs"}), "");
  EXPECT_EQ(nearest("epochs", {"run.dir", "train.epochs"}), "train.epochs");
  EXPECT_EQ(nearest("train.global", {"train.log_every", "train.global_batch"}), "train.global_batch");
}

TEST(Text, AListIsSplitAtItsSeparators) {
  using Items = std::vector<std::string>;
  EXPECT_EQ(split("", ','), Items{});
  EXPECT_EQ(split(" ", ','), Items{""});
  EXPECT_EQ(split("a, b c ,d", ','), (Items{"a", "b c", "d"}));
  EXPECT_EQ(split("a,,b,", ','), (Items{"a", "", "b", ""}));
}

TEST(Text, AShellTakesItAsOneWord) {
  EXPECT_EQ(quote_shell("runs/mnist-1"), "runs/mnist-1");
  EXPECT_EQ(quote_shell(""), "''");
  EXPECT_EQ(quote_shell("my runs/it's"), "'my runs/it'\\''s'");
}

TEST(Text, TomlReadsItAsOneText) {
  EXPECT_EQ(quote_toml("runs/1"), "\"runs/1\"");
  EXPECT_EQ(quote_toml("a\"b\\c\n\x7f"), "\"a\\\"b\\\\c\\u000A\\u007F\"");
}

TEST(Text, TwoColumnsFitATerminal) {
  EXPECT_EQ(in_two_columns("-n N", "ranks"), "  -n N                     ranks\n");
  const std::string word(25, 'x');
  EXPECT_EQ(in_two_columns(word, word + " " + word + " " + word),
            "  " + word + "\n" + std::string(27, ' ') + word + " " + word + "\n" + std::string(27, ' ') + word + "\n");
}

// The test vectors of the hash's authors (draft-eastlake-fnv).
TEST(Hash, IsFnv1a) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(fnv1a_step(kFnvBasis, 'a'), fnv1a("a"));
}

template <class Leaf>
void expect_kept(const Leaf& error) {
  const std::string text = encode(record_of(error));
  try {
    raise(decode_error(text), true);
  } catch (const Error& again) {
    EXPECT_EQ(typeid(again), typeid(Leaf)) << text;
    EXPECT_STREQ(again.what(), error.what());
    EXPECT_EQ(again.exit_code(), error.exit_code()) << text;
    EXPECT_TRUE(again.is_common());
  }
}

TEST(ErrorRecord, KeepsTypeCodeAndText) {
  expect_kept(Error(ExitCode::kNotANumber, "a loss\nof two lines"));
  expect_kept(InvalidArgument("a value", ExitCode::kUsage));
  expect_kept(Timeout("late"));
  expect_kept(PeerLost(3, "rank 3"));
  expect_kept(CollectiveMismatch("another call"));
  expect_kept(Aborted(""));
  expect_kept(IoError("a disk", ExitCode::kPermission));
  expect_kept(NoRoom("a full disk"));
  expect_kept(DataError(" a file "));
  expect_kept(BackendError("a device", ExitCode::kOsResource));
  expect_kept(InternalError("a bug"));
}

TEST(ErrorRecord, KeepsTheRankThatIsLost) {
  try {
    raise(decode_error(encode(record_of(PeerLost(3, "rank 3")))));
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.rank(), 3);
    EXPECT_FALSE(lost.is_common());
  }
}

TEST(ErrorRecord, OtherExceptionsBecomeErrors) {
  EXPECT_EQ(record_of(std::make_exception_ptr(std::bad_alloc())).code, ExitCode::kOsResource);
  const auto system = record_of(std::make_exception_ptr(std::system_error(std::make_error_code(std::errc::io_error))));
  EXPECT_EQ(system.kind, ErrorRecord::Kind::kIoError);
  EXPECT_EQ(record_of(std::make_exception_ptr(std::runtime_error("x"))).kind, ErrorRecord::Kind::kInternalError);
  EXPECT_EQ(record_of(std::make_exception_ptr(7)).code, ExitCode::kBug);
}

// Ranks of two builds report the different version to each other. No other error may hide this report.
TEST(ErrorRecord, TextOfAnOlderBuildIsAnError) {
  const auto record = decode_error("76 -1 rank 0 runs another version");
  EXPECT_EQ(record.code, ExitCode::kJobMismatch);
  EXPECT_EQ(record.kind, ErrorRecord::Kind::kError);
  EXPECT_EQ(record.text, "rank 0 runs another version");
  EXPECT_TRUE(encode(record).starts_with("76 -1 "));
}

TEST(ErrorRecord, OtherTextIsRefused) {
  for (const char* text : {"", "1", "a -1 0 x", "70 b 0 x", "1 70"}) {
    EXPECT_THROW(decode_error(text), InternalError) << text;
  }
}

}  // namespace
}  // namespace reigen::base
