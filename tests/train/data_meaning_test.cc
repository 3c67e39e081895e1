// A resumed run must have the data with which it began. Otherwise it says what differs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/format/safetensors.h"
#include "reigen/train/metrics_writer.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// A data set with the same numbers for any given meaning.
class Named final : public data::Dataset {
 public:
  Named(data::Meaning meaning, std::int64_t size = 195)
      : meaning_(std::move(meaning)), samples_(made_data(size, at::kDouble, "train")) {}
  std::int64_t size() const override { return samples_->size(); }
  const std::string& name() const override { return samples_->name(); }
  data::Samples gather(std::span<const std::int64_t> indices) const override { return samples_->gather(indices); }
  data::Meaning meaning() const override { return meaning_; }

 private:
  data::Meaning meaning_;
  data::DatasetPtr samples_;
};

data::Meaning classes(std::vector<std::string> names) {
  return {{.name = "classes", .values = std::move(names), .one = "class"}};
}

class DataMeaningTest : public TrainerTest {
 protected:
  Prepare with(const data::DatasetPtr& data) {
    return [data](int, SmallTask& task, TrainerOptions&) { task.data = data; };
  }
  Prepare with(const data::Meaning& meaning) { return with(std::make_shared<Named>(meaning)); }

  Config steps(std::int64_t number, bool goes_on) const {
    Config result = config("run");
    result.train.max_steps = number;
    if (goes_on) result.run.resume = "true";
    return result;
  }

  std::string refusal(const Prepare& prepare) {
    EXPECT_EQ(failure(2, steps(6, true), prepare), ExitCode::kConfiguration);
    return failure_text_;
  }
};

TEST_F(DataMeaningTest, RenamedReorderedAndMovedClassesAreRefused) {
  fit(2, steps(3, false), with(classes({"ape", "cat", "dog"})));
  EXPECT_THAT(refusal(with(classes({"ape", "cow", "dog"}))), HasSubstr("class 1 is 'cow', it was 'cat'"));
  EXPECT_THAT(refusal(with(classes({"dog", "cat", "ape"}))),
              AllOf(HasSubstr("class 0 is 'dog', it was 'ape'"), HasSubstr("another order")));
  EXPECT_THAT(refusal(with(classes({"ape", "bee", "cat", "dog"}))), HasSubstr("class 1 is 'bee', it was 'cat'"));
  EXPECT_THAT(refusal(with(data::Meaning{})), HasSubstr("do not say their classes"));
  EXPECT_THAT(failure_text_, HasSubstr("--data.may_differ true"));  // an option that exists
  EXPECT_EQ(fit(2, steps(6, true), with(classes({"ape", "cat", "dog"}))).steps, 6);
}

TEST_F(DataMeaningTest, OtherNumbersOfTheSameShapeAreRefused) {
  fit(2, steps(3, false));
  EXPECT_THAT(refusal(with(made_data(195, at::kDouble, "edited"))), HasSubstr("the content is 'xxh64 "));
  EXPECT_THAT(refusal(with(made_data(196, at::kDouble, "train"))), HasSubstr("data.samples is 196, it was 195"));
  EXPECT_EQ(fit(2, steps(6, true)).steps, 6);
}

// On another machine a sine may differ in its last bits.
TEST_F(DataMeaningTest, NumbersThatAreRoundedOtherwiseAreToldAndTaken) {
  const at::Tensor input = at::empty({195, 6}, at::kDouble);
  nn::fill_uniform(input, "train", 11, 1.0);
  const at::Tensor target = input.narrow(1, 0, 4).argmax(1);
  fit(2, steps(3, false), with(data::in_memory(input, target)));
  EXPECT_THAT(refusal(with(data::in_memory(input.to(at::kFloat), target))),
              HasSubstr("the form is 'Float [195, 6]; Long [195]', it was 'Double [195, 6]; Long [195]'"));
  EXPECT_EQ(fit(2, steps(6, true), with(data::in_memory(input * (1 + 1e-15), target))).steps, 6);
  EXPECT_THAT(output_, HasSubstr("warning: the floating_content is 'xxh64 "));
}

TEST_F(DataMeaningTest, ARunGoesOnWithOtherDataOnPurpose) {
  fit(2, steps(4, false), with(classes({"ape", "cat"})));  // in the middle of the second epoch
  Config on_purpose = steps(7, true);
  on_purpose.data.may_differ = true;
  EXPECT_EQ(fit(2, on_purpose, with(std::make_shared<Named>(classes({"ape", "dog"}), 400))).steps, 7);
  EXPECT_THAT(output_, AllOf(HasSubstr("note: data.may_differ: class 1 is 'dog', it was 'cat'"),
                             HasSubstr("note: data.may_differ: data.samples is 400, it was 195"),
                             HasSubstr("note: the epoch begins anew")));
  EXPECT_THAT(read_file(root_ / "run" / "config.toml"), HasSubstr("may_differ = false"));  // only for that start
  // From here on these are the run's data.
  EXPECT_THAT(refusal(with(std::make_shared<Named>(classes({"ape", "cat"}), 400))), HasSubstr("it was 'dog'"));
}

TEST_F(DataMeaningTest, DataThatSayNothingAreComparedByTheirNumber) {
  fit(2, steps(3, false), with(data::Meaning{}));
  EXPECT_EQ(fit(2, steps(6, true), with(classes({"ape", "cat"}))).steps, 6);
  EXPECT_THAT(output_, HasSubstr("note: the checkpoint does not say what its data were"));
}

TEST_F(DataMeaningTest, TheModelsFileSaysWhatItsNumbersMean) {
  Config run = config("run");
  run.optim.ema_decay = 0.9;
  run.run.save_initial = true;
  fit(2, run,
      with(classes({"ape",
                    "k\xe4"
                    "fer"})));
  for (const char* name : {"model.safetensors", "model_ema.safetensors", "initial.safetensors"}) {
    const auto metadata = format::SafetensorsFile(root_ / "run" / name).metadata();
    ASSERT_TRUE(metadata.contains("meaning.classes")) << name;
    EXPECT_EQ(metadata.at("meaning.classes"), R"(["ape","k\\xE4fer"])");
    EXPECT_EQ(metadata.at("format"), "pt");
  }
  // If no rank has the whole weights, the file is made from the checkpoint.
  Config shards = config("shards");
  shards.parallel.shard = "parameters";
  shards.comm.group.backend = "tcp";
  backend_ = "tcp";
  fit(2, shards, with(classes({"ape", "bee"})));
  EXPECT_EQ(format::SafetensorsFile(root_ / "shards" / "model.safetensors").metadata().at("meaning.classes"),
            R"(["ape","bee"])");
}

TEST_F(DataMeaningTest, RanksThatReadOtherDataAreFound) {
  const auto by_rank = [](int rank, SmallTask& task, TrainerOptions&) {
    task.data = std::make_shared<Named>(classes({"ape", rank == 1 ? "dog" : "cat"}));
  };
  EXPECT_EQ(failure(3, config("run"), by_rank), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("rank 1 of 3"), HasSubstr("class 1 is 'dog', it was 'cat' there")));
  const auto by_size = [](int rank, SmallTask& task, TrainerOptions&) {
    task.data = made_data(rank == 1 ? 196 : 195, at::kDouble, "train");
  };
  EXPECT_EQ(failure(2, config("run"), by_size), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("the number of samples is '196', it was '195' there"));
  EXPECT_FALSE(fs::exists(root_ / "run"));
}

TEST_F(DataMeaningTest, EachValidationHasALineInTheMetrics) {
  const double before = seconds_since_1970();
  fit(2, config("run"));
  const auto rows = validations_of(root_ / "run");
  ASSERT_EQ(rows.size(), 3U);
  for (std::size_t epoch = 0; epoch < rows.size(); ++epoch) {
    EXPECT_EQ(rows[epoch]["step"], 3 * (epoch + 1));
    EXPECT_EQ(rows[epoch]["epoch"], epoch);
    EXPECT_EQ(rows[epoch]["test_samples"], 511);
    EXPECT_GE(rows[epoch]["time"].get<double>(), before - 1e-3);
  }
  EXPECT_EQ(rows.back()["test_loss"], summary("run")["test_loss"]);
  EXPECT_EQ(rows.back()["test_accuracy"], summary("run")["test_accuracy"]);
  const auto steps_told = lines_of(root_ / "run");
  ASSERT_EQ(steps_told.size(), 9U);
  for (std::size_t i = 1; i < 9; ++i) EXPECT_GE(steps_told[i]["time"], steps_told[i - 1]["time"]);
}

// A run that was stopped in the middle of an epoch and resumed has the same validation lines as a whole run.
TEST_F(DataMeaningTest, ValidationsStayWhenARunGoesOn) {
  fit(2, config("whole"));
  Config part = config("run");
  part.train.max_steps = 4;
  fit(2, part);
  part.train.max_steps = 0;
  part.run.resume = "true";
  fit(2, part);
  const auto expected = validations_of(root_ / "whole");
  const auto rows = validations_of(root_ / "run");
  ASSERT_EQ(rows.size(), expected.size() + 1);  // one more for the end of the first part
  EXPECT_EQ(rows[1]["step"], 4);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rows[i == 0 ? 0 : i + 1]["test_loss"], expected[i]["test_loss"]);
}

}  // namespace
}  // namespace reigen::train
