// The work that `reigen data bench` measures.
#include "data/bench/worker.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/image/encode.h"

namespace reigen::apps::data {
namespace {

std::string jpeg_file() {
  image::Picture picture{.width = 120, .height = 80};
  picture.pixels.resize(std::size_t{3} * 120 * 80);
  std::iota(picture.pixels.begin(), picture.pixels.end(), std::uint8_t{0});
  const std::vector<std::byte> file = image::encode_jpeg(picture, 90);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

TEST(SampleAt, VisitsEverySampleOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 7, 10, 125, 1000, 50'000, 1'281'167}) {
    std::vector<bool> seen(static_cast<std::size_t>(size));
    const std::int64_t begin = 3 * size + 5;
    for (std::int64_t i = begin; i < begin + size; ++i) {
      const std::int64_t index = sample_at(i, size);
      ASSERT_TRUE(index >= 0 && index < size) << index << " of " << size;
      ASSERT_FALSE(seen[static_cast<std::size_t>(index)]) << index << " of " << size;
      seen[static_cast<std::size_t>(index)] = true;
    }
  }
}

TEST(SampleAt, SpreadsNeighbours) {
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t distance = std::abs(sample_at(i, 1000) - sample_at(i + 1, 1000));
    EXPECT_GT(distance, 100);
  }
}

class Workers : public testing::Test {
 protected:
  std::unique_ptr<container::Reader> open() {
    for (const char* name : {"a", "b"}) std::filesystem::create_directories(folder_.path() / name);
    folder_.write("a/1.jpg", whole_);
    folder_.write("b/2.jpg", second_);
    return container::open(folder_.path());
  }
  tests::TemporaryFolder folder_;
  std::string whole_ = jpeg_file();
  std::string second_ = whole_;
};

TEST_F(Workers, HaveARateInEveryPhase) {
  const auto reader = open();
  std::vector<Worker> team;
  for (int i = 0; i < 3; ++i) team.emplace_back(*reader, Preparation{.size = 16});
  for (const Phase phase : {Phase::kRead, Phase::kDecode, Phase::kAll}) EXPECT_GT(run(team, phase, 0, 20), 0);
}

TEST_F(Workers, NameTheSampleThatIsDamaged) {
  second_ = whole_.substr(0, whole_.size() / 2);
  const auto reader = open();
  std::vector<Worker> team;
  for (int i = 0; i < 2; ++i) team.emplace_back(*reader, Preparation{.size = 16});
  try {
    run(team, Phase::kAll, 0, 20);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sample 1 (b/2.jpg)"));
  }
}

TEST(FullDecode, RefusesWhatIsNoPicture) {
  FullDecode decode;
  const std::string text = "\xff\xd8\xff and no more";
  try {
    decode(std::as_bytes(std::span(text.data(), text.size())), "sample 7");
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("damaged: sample 7"));
  }
}

}  // namespace
}  // namespace reigen::apps::data
