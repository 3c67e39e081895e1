// What a SummaryWriter writes, and what a run writes for TensorBoard: the steps of metrics.jsonl, none twice and none
// lost after a resume.
#include "reigen/train/summary_writer.h"

#include <png.h>

#include "train/small_run.h"

namespace reigen::train {
namespace {

std::vector<format::Event> events_of(const fs::path& path) {
  std::vector<format::Event> all;
  const std::string content = read_file(path);
  const std::size_t length = format::read_events(content, [&](const format::Event& event) {
    all.push_back(event);
    return true;
  });
  EXPECT_EQ(length, content.size());
  return all;
}

class SummaryTest : public TrainerTest {
 protected:
  // The event files of a folder.
  std::vector<fs::path> boards_in(const std::string& directory) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(root_ / directory)) {
      if (format::is_event_file_name(entry.path().filename().string(), "reigen") ||
          format::is_event_file_name(entry.path().filename().string(), "run"))
        found.push_back(entry.path());
    }
    return found;
  }
  // The steps and values of a curve.
  std::vector<std::pair<std::int64_t, double>> curve(const std::string& directory, const std::string& tag) const {
    const auto boards = boards_in(directory);
    EXPECT_EQ(boards.size(), 1U);
    std::vector<std::pair<std::int64_t, double>> points;
    for (const format::Event& event : events_of(boards.at(0))) {
      for (const auto& [name, value] : event.scalars) {
        if (name == tag) points.emplace_back(event.when.step, value);
      }
    }
    return points;
  }
  // The tags of all records with their steps, in order.
  std::vector<std::string> records(const std::string& directory) const {
    std::vector<std::string> all;
    for (const format::Event& event : events_of(boards_in(directory).at(0))) {
      std::string text = std::to_string(event.when.step);
      for (const std::string& tag : event.tags) text += " " + tag;
      all.push_back(text);
    }
    return all;
  }
};

TEST_F(SummaryTest, AFileGoesOnAfterAStep) {
  {
    SummaryWriter board(root_ / "mine");
    EXPECT_TRUE(board.is_new());
    for (std::int64_t step = 1; step <= 5; ++step) board.scalar("loss", 1.0 / static_cast<double>(step), step);
    board.hparams_end(true, 5);
  }
  {
    SummaryWriter board(root_ / "mine", {.keep_steps = 3});
    EXPECT_FALSE(board.is_new());
    board.scalar("loss", 7, 4);
  }
  const auto points = curve("mine", "loss");
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[2].first, 3);
  EXPECT_EQ(points[3], (std::pair<std::int64_t, double>(4, 7)));
  // The end of the first session is not kept, even of a step that is.
  SummaryWriter(root_ / "mine", {.keep_steps = 5}).scalar("loss", 8, 6);
  EXPECT_THAT(records("mine"), Not(::testing::Contains(HasSubstr("session_end_info"))));
}

TEST_F(SummaryTest, ImagesAndHistogramsOfWrongTensorsAreRefused) {
  SummaryWriter board(root_ / "mine");
  EXPECT_THROW(board.image("a", at::zeros({2, 4, 4}), 1), InvalidArgument);
  EXPECT_THROW(board.image("a", at::zeros({3, 4, 4}, at::kInt), 1), InvalidArgument);
  EXPECT_THROW(board.image("a", at::zeros({4, 4}), 1), InvalidArgument);
  EXPECT_THROW(board.images("a", at::zeros({0, 3, 4, 4}), 1), InvalidArgument);
  EXPECT_THROW(board.images("a", at::zeros({2, 3, 4, 4}), 1, 0), InvalidArgument);
  board.images("a", at::zeros({5, 3, 4, 4}, at::kByte), 1, 2);
  board.histogram("h", at::full({3}, std::numeric_limits<double>::quiet_NaN()), 1);
  board.histogram("h", at::empty({0}), 2);
  board.flush();
  EXPECT_EQ(events_of(board.path()).size(), 4U);
}

// The pixels [H, W, C] of the PNG in a file.
at::Tensor pixels_in(const fs::path& path) {
  const std::string content = read_file(path);
  const std::size_t begin = content.find("\x89PNG");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, content.data() + begin, content.size() - begin), 0);
  const std::int64_t channels = PNG_IMAGE_SAMPLE_CHANNELS(image.format);
  const at::Tensor pixels = at::empty({image.height, image.width, channels}, at::kByte);
  EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.mutable_data_ptr(), 0, nullptr), 0);
  return pixels;
}

TEST_F(SummaryTest, PicturesAreTherePixelForPixel) {
  for (const std::int64_t channels : {1, 3, 4}) {
    const at::Tensor images =
        at::arange(5 * channels * 6 * 7).remainder(251).to(at::kByte).reshape({5, channels, 6, 7});
    if (channels == 4) images.select(1, 3).fill_(255);  // opaque
    const auto path_of = [&](const char* name) { return root_ / (name + std::to_string(channels)); };
    SummaryWriter one(path_of("one")), grid(path_of("grid")), floats(path_of("floats"));
    one.image("a", images[0], 1);
    grid.images("a", images, 1, 2);
    floats.image("a", images[0].to(at::kFloat) / 255, 1);
    for (SummaryWriter* board : {&one, &grid, &floats}) board->flush();
    EXPECT_TRUE(at::equal(pixels_in(one.path()), images[0].permute({1, 2, 0})));
    EXPECT_TRUE(at::equal(pixels_in(floats.path()), images[0].permute({1, 2, 0})));
    const at::Tensor all = pixels_in(grid.path());
    EXPECT_EQ(all.sizes(), at::IntArrayRef({3 * 7 - 1, 2 * 8 - 1, channels}));
    for (std::int64_t i = 0; i < 5; ++i) {
      const at::Tensor cell = all.narrow(0, i / 2 * 7, 6).narrow(1, i % 2 * 8, 7);
      EXPECT_TRUE(at::equal(cell, images[i].permute({1, 2, 0}))) << i;
    }
    EXPECT_EQ(all.select(0, 6).max().item<int>(), 0);
  }
}

// The curves have the numbers of metrics.jsonl, on one rank and on three. A run that is stopped and resumed has the
// records of one that was not.
TEST_F(SummaryTest, ARunsCurvesAreThoseOfItsMetrics) {
  for (const int ranks : {1, 3}) {
    const std::string whole = "whole" + std::to_string(ranks), parts = "parts" + std::to_string(ranks);
    Config run = config(whole);
    run.train.clip_norm = 0.5;
    fit(ranks, run);
    const auto loss = curve(whole, "train/loss"), norm = curve(whole, "train/grad_norm");
    const auto lines = lines_of(root_ / whole);
    ASSERT_EQ(loss.size(), lines.size());
    ASSERT_EQ(norm.size(), lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(loss[i].first, lines[i]["step"].get<std::int64_t>());
      EXPECT_EQ(loss[i].second, static_cast<float>(lines[i]["loss"].get<double>()));
      EXPECT_EQ(norm[i].second, static_cast<float>(lines[i]["grad_norm"].get<double>()));
    }
    EXPECT_EQ(curve(whole, "test/accuracy").size(), validations_of(root_ / whole).size());
    EXPECT_THAT(records(whole), ::testing::IsSupersetOf(
                                    {"0 config", "0 _hparams_/session_start_info", "9 _hparams_/session_end_info"}));

    Config part = config(parts);
    part.train.clip_norm = 0.5;
    part.checkpoint.every_steps = 2;
    const Prepare dies = [](int, SmallTask& task, TrainerOptions&) {
      task.before_call = [](std::int64_t call) {
        if (call == 6) throw Error(ExitCode::kBug, "the test ends the run");
      };
    };
    EXPECT_THROW(fit(ranks, part, dies), Error);
    part.run.resume = "true";
    fit(ranks, part);
    EXPECT_EQ(records(parts), records(whole));
    EXPECT_EQ(curve(parts, "train/loss"), loss);
  }
}

// A program's own curves in the run's directory are not the run's.
TEST_F(SummaryTest, TheFileOfTheUserIsLeftAlone) {
  SummaryWriter mine(root_ / "run"), another(root_ / "run");
  EXPECT_NE(mine.path(), another.path());
  mine.scalar("mine", 1, 7);
  mine.flush();
  const std::string before = read_file(mine.path());
  Config run = config("run");
  run.checkpoint.every_steps = 3;
  fit(2, run);
  run.run.resume = "true";
  run.train.epochs = 4;
  fit(2, run);
  EXPECT_EQ(read_file(mine.path()), before);
  EXPECT_EQ(boards_in("run").size(), 3U);
}

// A run goes on without curves if they cannot be written.
TEST_F(SummaryTest, ABoardThatCannotBeOpenedIsToldAndTheRunGoesOn) {
  fs::create_directories(root_ / "run" / (format::event_file_name(1, "run")));  // a folder of this name
  fit(2, config("run"));
  EXPECT_THAT(output_, HasSubstr("TensorBoard gets nothing more of this run"));
  EXPECT_EQ(losses("run").size(), 9U);
}

TEST_F(SummaryTest, WithoutTensorBoardThereIsNoFile) {
  Config run = config("run");
  run.log.tensorboard = false;
  fit(1, run);
  EXPECT_TRUE(boards_in("run").empty());
}

}  // namespace
}  // namespace reigen::train
