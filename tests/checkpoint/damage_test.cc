// Damaged checkpoints: every damage is found and named, and the checkpoint before the damaged one is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "checkpoint/layouts.h"
#include "format/temporary_folder.h"
#include "harness/sanitizer.h"
#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

namespace reigen::testing_checkpoint {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using tests::content_of;

// Writes a new file. If an old file were truncated and written again, some file systems would wait for the disk.
void write(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int step : {1, 2}) {
      run_threads(2, [&](Communicator& world) {
        const Held held = hold(some_tensors(), Layout::kFlat, world.rank(), 2, static_cast<std::uint64_t>(100 * step));
        checkpoint::save(root_, {.step = step}, held.contents, 2, world);
      });
    }
    path_ = root_ / checkpoint::name_of(2);
    for (const auto& entry : fs::directory_iterator(path_)) files_.push_back(entry.path().filename().string());
    std::sort(files_.begin(), files_.end());
  }

  std::string found() const {
    try {
      Checkpoint(path_).verify();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  tests::TemporaryFolder folder_;
  fs::path root_ = folder_.path();
  fs::path path_;
  std::vector<std::string> files_;
};

// The name of the tensor whose piece contains this byte of the file; "" for headers and the manifest.
std::string tensor_at(const Checkpoint& from, const std::string& file, std::uint64_t byte) {
  for (const auto& [group, tensors] : from.manifest().groups) {
    for (const auto& tensor : tensors) {
      for (const auto& piece : tensor.pieces) {
        const std::uint64_t bytes = static_cast<std::uint64_t>(piece.part.count) * format::size_of(tensor.type);
        if (from.manifest().files[piece.file].name == file && byte >= piece.at && byte < piece.at + bytes)
          return tensor.name;
      }
    }
  }
  return "";
}

TEST_F(Damage, OfAnyFileFallsBackToTheCheckpointBefore) {
  for (const std::string& file : files_) {
    const std::string good = content_of(path_ / file);
    std::vector<std::string> bad = {good.substr(0, good.size() / 2), good.substr(0, good.size() - 3), "", good + "x"};
    for (std::size_t at = 0; at < good.size(); at += testing::kSanitized ? 31 : 7) {
      bad.push_back(good);
      bad.back()[at] = static_cast<char>(bad.back()[at] ^ 0x04);
    }
    for (const std::string& bytes : bad) {
      write(path_ / file, bytes);
      const checkpoint::Search search = checkpoint::find_newest(root_);
      ASSERT_TRUE(search.newest.has_value()) << file;
      ASSERT_EQ(search.newest->manifest().step, 1) << file << ": " << bytes.size();
      ASSERT_EQ(search.damaged.size(), 1U);
      EXPECT_THAT(search.damaged[0], ::testing::HasSubstr(file));
    }
    fs::remove(path_ / file);
    EXPECT_EQ(checkpoint::find_newest(root_).newest->manifest().step, 1) << file;
    EXPECT_THROW(Checkpoint{path_}, DataError);
    write(path_ / file, good);
  }
}

// AddressSanitizer takes four times as long, and finds an access outside of a block in fewer damages.
constexpr int kDamages = testing::kSanitized ? 2000 : 10000;

// A checkpoint is damaged many times, at random with a known seed.
TEST_F(Damage, IsAlwaysFoundAndNamed) {
  std::mt19937_64 random(7);
  ASSERT_EQ(found(), "");
  const Checkpoint whole(path_);
  const auto at = [&](std::size_t size) { return static_cast<std::size_t>(random() % size); };
  for (int i = 0; i < kDamages; ++i) {
    const std::string file = files_[at(files_.size())];
    const std::string before = content_of(path_ / file);
    std::string bytes = before;
    std::string what;
    std::string tensor;
    switch (at(6)) {
      case 0: {
        const std::size_t byte = at(bytes.size());
        bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << at(8)));
        what = "a bit of byte " + std::to_string(byte);
        tensor = tensor_at(whole, file, byte);
        break;
      }
      case 1:
        bytes.resize(at(bytes.size()));
        what = "truncated";
        break;
      case 2: {
        const std::size_t first = at(bytes.size());
        const std::size_t count = std::min<std::size_t>(bytes.size() - first, 1 + at(512));
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(first), count, '\0');
        what = "zeros";
        break;
      }
      case 3:
        bytes = content_of(path_ / files_[at(files_.size())]);
        what = "another file's bytes";
        break;
      case 4:
        bytes = content_of(root_ / checkpoint::name_of(1) / file);
        what = "the file of another step";
        break;
      default: bytes += std::string(1 + at(64), 'x'); what = "a longer file";
    }
    if (bytes == before) continue;
    write(path_ / file, bytes);
    const std::string message = found();
    write(path_ / file, before);
    ASSERT_NE(message, "") << i << ": " << what << " of " << file << " was not found";
    ASSERT_NE(message.find(file), std::string::npos) << i << ": " << what << " of " << file << ": " << message;
    ASSERT_NE(message.find(tensor), std::string::npos) << i << ": " << what << " of " << tensor << ": " << message;
    if (!tensor.empty()) {
      ASSERT_NE(message.find("bytes "), std::string::npos) << message;
    }
  }
  for (const std::string& file : files_) {
    fs::rename(path_ / file, root_ / "away");
    EXPECT_NE(found().find(file), std::string::npos) << file << " is missing";
    fs::rename(root_ / "away", path_ / file);
  }
  EXPECT_EQ(found(), "");
}

}  // namespace
}  // namespace reigen::testing_checkpoint
