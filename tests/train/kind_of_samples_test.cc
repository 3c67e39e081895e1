// A run's first line says which files of a folder it uses, and which it skips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "reigen/format/tokenizer.h"
#include "reigen/train/decoder_task.h"
#include "reigen/train/mnist_task.h"
#include "reigen/train/resnet18_task.h"

namespace reigen::train {
namespace {

using tests::TemporaryFolder;
namespace fs = std::filesystem;

void put(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
  fs::create_directories((folder.path() / name).parent_path());
  folder.write(name, content);
}

TEST(KindOfSamples, TellsHowManyTexts) {
  const TemporaryFolder folder;
  put(folder, "a.txt", "a text of more than twenty bytes");
  put(folder, ".git/description.txt", "not this");
  GptTask task({.path = folder.path().string()});
  task.training();
  EXPECT_EQ(task.kind_of_samples(),
            "windows of 256 characters from " + folder.path().string() + " (1 file; passed over 1 hidden: .git)");
  GptTask of_a_file({.path = (folder.path() / "a.txt").string()});
  of_a_file.training();
  EXPECT_EQ(of_a_file.kind_of_samples(), "windows of 256 characters from " + (folder.path() / "a.txt").string());
}

TEST(KindOfSamples, TellsTokens) {
  const std::string tokenizer = std::string(kSourceFolder) + "/tests/format/files/tokenizers/llama3.json";
  GptTask task({.tokenizer = tokenizer});
  EXPECT_EQ(task.kind_of_samples(), "windows of 256 tokens from Reigen's documents");
  EXPECT_EQ(task.files(), (std::vector<std::pair<std::string, std::string>>{{"tokenizer.json", tokenizer}}));
  EXPECT_THAT(task.describe({.values = {{"test_loss", 0}, {"test_perplexity", 1}}, .terms = 7}),
              testing::HasSubstr("(7 tokens)"));
  GptTask of_bytes;
  EXPECT_TRUE(of_bytes.files().empty());
}

// The names are in two floors, neither of which may include the other.
TEST(KindOfSamples, OptionsHaveTheNamesOfWordPatterns) {
  Config config;
  config.data.takes_tokenizer = true;
  for (const Field& field : config::fields(config)) {
    if (field.name() == "data.word_pattern") {
      EXPECT_EQ(field.choices, format::names_of_word_patterns());
    }
  }
}

TEST(KindOfSamples, TellsHowManyPictures) {
  const TemporaryFolder folder;  // only the names are read, not the files
  for (const char* name : {"train/cat/a.png", "train/dog/a.jpg", "train/dog/b.gif"}) put(folder, name, "x");
  ResNet18Task task({.path = folder.path().string()});
  task.training();
  EXPECT_EQ(task.kind_of_samples(), "pictures of 2 classes from " + folder.path().string() +
                                        " (2 files; passed over 1 of another ending: .gif)");
}

TEST(KindOfSamples, TellsWhereTheDigitsWereFound) {
  const TemporaryFolder folder;
  const std::string image(28 * 28, '\0');
  put(folder, "MNIST/raw/train-images-idx3-ubyte",
      std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x1c\0\0\0\x1c", 16) + image);
  put(folder, "MNIST/raw/train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x01\x07", 9));
  MnistTask task({.path = folder.path().string()});
  task.training();
  fs::remove_all(folder.path() / "MNIST");  // the place is known by now, and is not searched again
  EXPECT_EQ(task.kind_of_samples(), "digits from " + (folder.path() / "MNIST/raw").string());
}

}  // namespace
}  // namespace reigen::train
