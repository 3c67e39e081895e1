// What datasets say about the meaning of the numbers in their samples.
#include "reigen/data/meaning.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "format/temporary_folder.h"
#include "reigen/data/digits.h"
#include "reigen/data/pictures.h"
#include "reigen/data/text.h"

namespace reigen::data::meaning_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using Values = std::vector<std::string>;

Values values_of(const Meaning& meaning, const std::string& name) {
  for (const Fact& fact : meaning) {
    if (fact.name == name) return fact.values;
  }
  return {};
}

Meaning of_text(const std::string& text) {
  return text_windows(std::make_shared<const Corpus>("a text", text), {.context = 4})->meaning();
}

TEST(DataMeaning, ATextSaysItsAlphabetAndAHashOfAllOfIt) {
  const Meaning one = of_text("abba cab abba cab abba");
  EXPECT_THAT(values_of(one, "alphabet"), ElementsAre(" ", "a", "b", "c"));
  EXPECT_EQ(one, of_text("abba cab abba cab abba"));
  // Another text with the same number of different bytes gives the same numbers.
  EXPECT_THAT(values_of(of_text("zbbz czb zbbz czb zbbz"), "alphabet"), ElementsAre(" ", "b", "c", "z"));
  const Meaning edited = of_text("abba cab abba cab abbc");
  EXPECT_EQ(values_of(edited, "alphabet"), values_of(one, "alphabet"));
  EXPECT_NE(values_of(edited, "text"), values_of(one, "text"));
}

// Only names and sizes of files matter here: no picture is decoded.
class Pictures : public ::testing::Test {
 protected:
  void put(const std::string& name, std::size_t size = 3) const {
    fs::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << std::string(size, 'x');
  }
  Meaning meaning() const { return image_folder(folder_.path()).data->meaning(); }

  tests::TemporaryFolder folder_;
};

TEST_F(Pictures, SayTheirClassesInOrderWhatEachHoldsAndTheirFiles) {
  for (const char* name : {"train/cat/1.jpg", "train/cat/2.png", "train/dog/1.jpg"}) put(name);
  const Meaning before = meaning();
  EXPECT_THAT(values_of(before, "classes"), ElementsAre("cat", "dog"));
  EXPECT_THAT(values_of(before, "pictures"), ElementsAre("cat 2", "dog 1"));
  EXPECT_EQ(before, meaning());

  fs::rename(folder_.path() / "train/cat", folder_.path() / "train/elk");
  EXPECT_THAT(values_of(meaning(), "classes"), ElementsAre("dog", "elk"));
  fs::rename(folder_.path() / "train/elk", folder_.path() / "train/cat");
  EXPECT_EQ(before, meaning());

  // A picture gets another name: each class still has as many pictures.
  fs::rename(folder_.path() / "train/cat/1.jpg", folder_.path() / "train/cat/3.jpg");
  EXPECT_EQ(values_of(meaning(), "pictures"), values_of(before, "pictures"));
  EXPECT_NE(values_of(meaning(), "files"), values_of(before, "files"));
  fs::rename(folder_.path() / "train/cat/3.jpg", folder_.path() / "train/cat/1.jpg");
  put("train/dog/1.jpg", 4);
  EXPECT_NE(values_of(meaning(), "files"), values_of(before, "files"));
}

TEST_F(Pictures, MeanTheSameWhereverTheirFolderLies) {
  for (const char* name : {"one/train/a/1.jpg", "one/train/b/1.jpg"}) put(name);
  const Meaning before = image_folder(folder_.path() / "one").data->meaning();
  fs::rename(folder_.path() / "one", folder_.path() / "two");
  EXPECT_EQ(image_folder(folder_.path() / "two").data->meaning(), before);
  EXPECT_EQ(image_folder((folder_.path() / "two/.").string()).data->meaning(), before);
}

TEST(DataMeaning, TensorsInMemorySayAHash) {
  const at::Tensor input = at::arange(24, at::kFloat).reshape({6, 4});
  const at::Tensor target = at::arange(6);
  const Meaning meaning = in_memory(input, target)->meaning();
  EXPECT_EQ(meaning, in_memory(input.clone(), target, "another name")->meaning());
  const std::vector<Meaning> others = {in_memory(input + 1, target)->meaning(), in_memory(input, target + 1)->meaning(),
                                       in_memory(input.reshape({6, 2, 2}), target)->meaning(),
                                       in_memory(input.to(at::kDouble), target)->meaning()};
  const auto all_of = [](const Meaning& one) {
    std::string text;
    for (const Fact& fact : one) text += fact.name + fact.values.at(0) + '\n';
    return text;
  };
  std::set<std::string> seen = {all_of(meaning)};
  for (const Meaning& other : others) EXPECT_TRUE(seen.insert(all_of(other)).second);
  // Floating-point numbers may be computed, and then rounded differently on another machine. So their hash is reported,
  // but a difference does not prevent a run from going on.
  EXPECT_THAT(values_of(meaning, "form"), ElementsAre("Float [6, 4]; Long [6]"));
  EXPECT_EQ(values_of(others[0], "content"), values_of(meaning, "content"));
  for (const Fact& fact : meaning) EXPECT_EQ(fact.is_told_only, fact.name == "floating_content");
}

TEST(DataMeaning, DrawnDataSayTheirSeed) {
  EXPECT_EQ(digits()->meaning(), digits({.size = 7})->meaning());
  EXPECT_NE(digits()->meaning(), digits({.seed = 1})->meaning());
  EXPECT_NE(digits()->meaning(), drawn_pictures()->meaning());
}

}  // namespace
}  // namespace reigen::data::meaning_test
