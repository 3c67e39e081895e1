// What a run writes for TensorBoard beside its curves: histograms of whole weights and gradients for any layout of the
// ranks, the pictures of the first batch, and the graph of the modules.
#include <png.h>

#include <cmath>
#include <map>
#include <utility>

#include "format/protobuf/protobuf.h"
#include "reigen/format/event_file.h"
#include "reigen/train/decoder_task.h"
#include "reigen/train/summary_writer.h"
#include "train/files/summary_values.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

using format::protobuf::Fields;

struct Counted {
  std::map<double, double> counts = {};  // by the upper limit of the bucket
  double min = 0, max = 0, sum = 0, squares = 0;
};
using Key = std::pair<std::int64_t, std::string>;  // step and tag

// The numbers in order, each in the first bucket whose limit is not below it.
Counted by_hand(const at::Tensor& values) {
  Counted result{.min = HUGE_VAL, .max = -HUGE_VAL};
  const at::Tensor flat = values.detach().to(at::kDouble).reshape({-1}).contiguous();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const double value = flat.const_data_ptr<double>()[i];
    for (const double limit : Buckets::limits()) {
      if (limit < value) continue;
      ++result.counts[limit];
      break;
    }
    result.min = std::min(result.min, value);
    result.max = std::max(result.max, value);
    result.sum += value;
    result.squares += value * value;
  }
  return result;
}

std::vector<double> doubles_in(std::string_view bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

Counted histogram_in(std::string_view message) {
  Counted result;
  std::vector<double> limits, counts;
  Fields fields(message);
  while (const auto field = fields.next()) {
    if (field->number == 1) result.min = field->as_double();
    if (field->number == 2) result.max = field->as_double();
    if (field->number == 4) result.sum = field->as_double();
    if (field->number == 5) result.squares = field->as_double();
    if (field->number == 6) limits = doubles_in(field->bytes);
    if (field->number == 7) counts = doubles_in(field->bytes);
  }
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (counts[i] > 0) result.counts[limits[i]] = counts[i];
  }
  return result;
}

class BoardRun : public TrainerTest {
 protected:
  std::string board(const std::string& directory) const {
    for (const auto& entry : fs::directory_iterator(root_ / directory)) {
      if (format::is_event_file_name(entry.path().filename().string(), "run")) return read_file(entry.path());
    }
    return {};
  }
  // Calls visit(step, tag, number of the field, its bytes) for each value of the file that is not a scalar.
  void for_each_value(const std::string& directory, const auto& visit) const {
    const std::string content = board(directory);
    for (std::size_t at = 0; at < content.size();) {
      std::uint64_t size = 0;
      std::memcpy(&size, content.data() + at, sizeof size);
      Fields event(std::string_view(content).substr(at + 12, size));
      at += 12 + size + 4;
      std::int64_t step = 0;
      while (const auto field = event.next()) {
        if (field->number == 2) step = static_cast<std::int64_t>(field->integer);
        if (field->number == 4) visit(step, std::string("graph"), 0U, field->bytes);
        if (field->number != 5) continue;
        Fields summary(field->bytes);
        while (const auto value = summary.next()) {
          std::string tag;
          Fields parts(value->bytes);
          while (const auto part = parts.next()) {
            if (part->number == 1) tag = part->bytes;
            if (part->number == 4 || part->number == 5) visit(step, tag, part->number, part->bytes);
          }
        }
      }
    }
  }
  std::map<Key, Counted> histograms(const std::string& directory) const {
    std::map<Key, Counted> all;
    for_each_value(directory, [&](std::int64_t step, const std::string& tag, std::uint32_t field, auto bytes) {
      if (field != 5) return;
      EXPECT_TRUE(all.emplace(Key(step, tag), histogram_in(bytes)).second) << "twice: " << step << " " << tag;
    });
    return all;
  }
  static void expect_equal(const std::map<Key, Counted>& found, const std::map<Key, Counted>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, value] : expected) {
      SCOPED_TRACE(std::to_string(key.first) + " " + key.second);
      ASSERT_TRUE(found.contains(key));
      const Counted& one = found.at(key);
      EXPECT_EQ(one.counts, value.counts);
      EXPECT_NEAR(one.min, value.min, 1e-9);
      EXPECT_NEAR(one.max, value.max, 1e-9);
      EXPECT_NEAR(one.sum, value.sum, 1e-9);
      EXPECT_NEAR(one.squares, value.squares, 1e-9);
    }
  }
};

// Counts by hand in the steps that are a multiple of `every`.
struct ByHand : Callback {
  explicit ByHand(std::map<Key, Counted>* counts, std::int64_t steps) : all(counts), every(steps) {}
  std::string name() const override { return "by hand"; }
  void before_optimizer(Moment& m) override {
    if (m.step % every != 0) return;
    for (const auto& item : m.task.module().named_parameters())
      (*all)[{m.step, "gradients/" + item.key()}] = by_hand(item.value().grad());
  }
  void end_step(Moment& m) override {
    if (m.step % every != 0) return;
    for (const auto& item : m.task.module().named_parameters())
      (*all)[{m.step, "weights/" + item.key()}] = by_hand(item.value());
  }
  std::map<Key, Counted>* all;
  std::int64_t every;
};

TEST_F(BoardRun, BucketsAreThoseOfASearch) {
  const std::vector<double>& limits = Buckets::limits();
  std::vector<double> numbers = {0, -0.0, 1e-300, -1e-300, 5e-324, 1e-12, -1e-12, 1e19, 1e21, -1e21, 1e300, -1e300};
  for (const double limit : limits) {
    for (const double towards : {-HUGE_VAL, limit, HUGE_VAL}) {
      if (const double near = std::nextafter(limit, towards); std::isfinite(near)) numbers.push_back(near);
    }
  }
  for (const double number : numbers) {
    Buckets buckets;
    buckets.add(at::full({1}, number, at::kDouble));
    const auto histogram = buckets.histogram();
    EXPECT_EQ(histogram.limits.back(), *std::lower_bound(limits.begin(), limits.end(), number)) << number;
    EXPECT_EQ(histogram.counts.back(), 1);
    EXPECT_EQ(histogram.min, number);
    EXPECT_EQ(histogram.max, number);
  }
}

TEST_F(BoardRun, HistogramsAreThoseOfTheWholeParametersInEachLayout) {
  std::map<Key, Counted> expected;
  Config run = config("alone");
  run.log.histograms = "2";
  fit(1, run,
      [&](int, SmallTask&, TrainerOptions& options) { options.callbacks = {std::make_shared<ByHand>(&expected, 2)}; });
  ASSERT_EQ(expected.size(), 4U * 2 * 4) << "steps 2, 4, 6, 8; weights and gradients; four parameters";
  expect_equal(histograms("alone"), expected);
  for (const int ranks : {2, 3}) {
    for (const char* backend : {"shared_memory", "tcp"}) {
      for (const char* shard : {"none", "optimizer", "gradients", "parameters"}) {
        SCOPED_TRACE(std::to_string(ranks) + " " + backend + " " + shard);
        backend_ = backend;
        const std::string name = std::to_string(ranks) + backend + shard;
        Config divided = config(name);
        divided.parallel.shard = shard;
        divided.train.clip_norm = ranks == 3 && shard != std::string("none") ? 100 : 0;  // reads the gradients before
        fit(ranks, divided);
        const std::string without = model(name);
        fs::remove_all(root_ / name);
        divided.log.histograms = "2";
        fit(ranks, divided);
        EXPECT_EQ(model(name), without) << "histograms change the training";
        expect_equal(histograms(name), expected);
      }
    }
  }
}

TEST_F(BoardRun, AResumedRunHasTheHistogramsOfAnUndisturbedOne) {
  for (const char* every : {"2", "0.5 epochs"}) {
    Config undisturbed = config(std::string("whole") + every[0]);
    undisturbed.log.histograms = every;
    undisturbed.parallel.shard = "gradients";
    fit(3, undisturbed);
    const auto expected = histograms(std::string("whole") + every[0]);
    ASSERT_EQ(expected.size(), every[0] == '2' ? 4U * 8 : 6U * 8);
    for (const std::int64_t stop_after : {1, 2, 3, 4}) {
      const std::string name = every[0] + std::string("stopped") + std::to_string(stop_after);
      Config run = config(name);
      run.log.histograms = every;
      run.parallel.shard = "gradients";
      const auto stops = [&](int rank, SmallTask&, TrainerOptions& options) {
        if (rank == 1)
          options.stop_requested = [calls = std::int64_t{0}, stop_after]() mutable { return ++calls >= stop_after; };
      };
      EXPECT_TRUE(fit(3, run, stops).stopped);
      run.run.resume = "true";
      fit(3, run);
      expect_equal(histograms(name), expected);
    }
    // From a checkpoint before the end: the later histograms are cut off and written again.
    const std::string name = std::string("again") + every[0];
    Config run = config(name);
    run.log.histograms = every;
    run.parallel.shard = "gradients";
    run.checkpoint.every_steps = 2;
    run.checkpoint.keep = 9;
    run.train.max_steps = 7;
    fit(3, run);
    run.train.max_steps = 0;
    run.run.resume = (root_ / name / "checkpoints/step_00000002").string();
    fit(3, run);
    expect_equal(histograms(name), expected);
  }
}

TEST_F(BoardRun, RanksThatDivideAModelCountWholeParameters) {
  std::string text;
  for (int i = 0; text.size() < 4000; ++i) text += i * i % 7 < 3 ? "ranks divide " : "layers and tokens ";
  std::ofstream(root_ / "text.txt") << text;
  const auto train = [&](int ranks, const std::string& name, const std::function<void(Config&)>& change) {
    Config run = config(name);
    run.train.global_batch = 12;
    run.train.max_steps = 4;
    run.data.limit = 120;
    run.log.histograms = "2";
    change(run);
    run_threads(ranks, [&](Communicator& world) {
      LlamaTask task(LlamaTaskOptions{
          .path = (root_ / "text.txt").string(),
          .type = at::kDouble,
          .without_memory = true,
          .model = {.vocab = 0, .layers = 1, .dim = 24, .heads = 6, .kv_heads = 3, .hidden = 20, .context = 16}});
      Trainer(task, world, {.config = run, .write = [](const std::string&) {}}).fit();
    });
    return histograms(name);
  };
  const auto expected = train(1, "one", [](Config&) {});
  ASSERT_GE(expected.size(), 2U * 2 * 10);
  const auto tensor = [](Config& run) { run.mesh.tp = 3; };
  const auto stages = [](Config& run) { run.mesh.pp = 2, run.train.micro_batch = 2; };
  const auto context = [](Config& run) { run.mesh.cp = 2; };
  const auto sharded = [](Config& run) { run.mesh.tp = 3, run.parallel.shard = "gradients"; };
  expect_equal(train(3, "tensor", tensor), expected);
  expect_equal(train(2, "stages", stages), expected);
  expect_equal(train(2, "context", context), expected);
  expect_equal(train(6, "sharded", sharded), expected);
}

// Pictures [3, 4, 5]: the numbers of most go beyond 0 to 1.
struct PictureTask final : Task, DataModule {
  explicit PictureTask(at::ScalarType type, std::int64_t channels = 3)
      : pictures(at::arange(50 * channels * 20).remainder(241).reshape({50, channels, 4, 5}).to(at::kDouble) / 100 - 1),
        net(std::make_shared<SmallNet>()) {
    if (type == at::kByte) pictures = pictures.add(1).mul(100).round().to(at::kByte);
  }
  torch::nn::Module& module() override { return *net; }
  data::DatasetPtr training() override { return data::in_memory(pictures, at::arange(50).remainder(4), "pictures"); }
  at::Tensor training_step(const data::Samples& batch) override {
    const at::Tensor flat = batch.input.to(at::kFloat).reshape({batch.input.size(0), -1}).narrow(1, 0, 6);
    return at::cross_entropy_loss(net->forward(flat), batch.target);
  }
  at::Tensor pictures;
  std::shared_ptr<SmallNet> net;
};

at::Tensor pixels_of(std::string_view image) {
  std::string png;
  Fields fields(image);
  while (const auto field = fields.next()) {
    if (field->number == 4) png = field->bytes;
  }
  png_image head{};
  head.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&head, png.data(), png.size()), 0);
  const at::Tensor pixels = at::empty({head.height, head.width, PNG_IMAGE_SAMPLE_CHANNELS(head.format)}, at::kByte);
  EXPECT_NE(png_image_finish_read(&head, nullptr, pixels.mutable_data_ptr(), 0, nullptr), 0);
  return pixels;
}

TEST_F(BoardRun, TheFirstPicturesAreThoseOfTheGlobalBatch) {
  for (const at::ScalarType type : {at::kDouble, at::kByte}) {
    for (const int ranks : {1, 3}) {
      const std::string name = std::to_string(ranks) + at::toString(type);
      Config run = config(name);
      run.train.precision = "fp32";
      run.train.global_batch = 20;
      run.train.max_steps = 3;
      run.train.micro_batch = 4;
      run.data.dump_order = (root_ / (name + ".txt")).string();
      run.log.images = 11;  // of three ranks, which have 7, 7 and 6
      at::Tensor pictures;
      const auto train = [&] {
        run_threads(ranks, [&](Communicator& world) {
          PictureTask task(type);
          Trainer(task, world, {.config = run, .write = [](const std::string&) {}}).fit();
          if (world.rank() == 0) pictures = task.pictures;
        });
      };
      train();
      run.run.resume = "true";
      run.train.max_steps = 5;
      train();  // writes no more pictures
      std::vector<at::Tensor> found;
      for_each_value(name, [&](std::int64_t step, const std::string& tag, std::uint32_t field, auto bytes) {
        if (field != 4) return;
        EXPECT_EQ(step, 1);
        EXPECT_EQ(tag, "first batch");
        found.push_back(pixels_of(bytes));
      });
      ASSERT_EQ(found.size(), 1U);
      ASSERT_EQ(found[0].sizes(), at::IntArrayRef({2 * 5 - 1, 8 * 6 - 1, 3}));
      std::ifstream order(run.data.dump_order);
      for (std::int64_t i = 0, index = 0; i < 11 && order >> index; ++i) {
        at::Tensor picture = pictures[index];
        if (type == at::kDouble) {
          picture = picture.to(at::kFloat);
          const float least = picture.min().item<float>(), most = picture.max().item<float>();
          if (least < 0 || most > 1) picture = (picture - least) / (most - least);
          picture = picture.to(at::kDouble).mul(255).round().to(at::kByte);
        }
        const at::Tensor shown = found[0].narrow(0, i / 8 * 5, 4).narrow(1, i % 8 * 6, 5);
        EXPECT_LE((shown.permute({2, 0, 1}).to(at::kInt) - picture.to(at::kInt)).abs().max().item<int>(), 0) << i;
      }
    }
  }
}

TEST_F(BoardRun, InputsThatAreNoPicturesAreRefused) {
  for (const int ranks : {1, 3}) {
    Config run = config("none" + std::to_string(ranks));
    run.log.images = 4;
    EXPECT_EQ(failure(ranks, run), ExitCode::kConfiguration);
    EXPECT_THAT(failure_text_, AllOf(HasSubstr("log.images"), HasSubstr("6] of Double"), HasSubstr("1 or 3 channels")));
    for (const ExitCode code : codes_) EXPECT_EQ(code, ExitCode::kConfiguration);
  }
}

TEST_F(BoardRun, TheGraphIsTheTreeOfModulesWithTheUnitsInOrder) {
  Config run = config("run");
  run.train.max_steps = 2;
  const auto with_units = [](int, SmallTask& task, TrainerOptions&) { task.has_units = true; };
  fit(2, run, with_units);
  std::map<std::string, std::vector<std::string>> inputs;
  std::map<std::string, std::string> ops;
  int graphs = 0;
  for_each_value("run", [&](std::int64_t step, const std::string& tag, std::uint32_t, std::string_view bytes) {
    if (tag != "graph") return;
    ++graphs;
    EXPECT_EQ(step, 0);
    Fields graph(bytes);
    while (const auto node = graph.next()) {
      if (node->number != 1) continue;
      std::string name;
      Fields parts(node->bytes);
      while (const auto part = parts.next()) {
        if (part->number == 1) name = part->bytes;
        if (part->number == 2) ops[name] = part->bytes;
        if (part->number == 3) inputs[name].emplace_back(part->bytes);
      }
    }
  });
  EXPECT_EQ(graphs, 1);
  const std::map<std::string, std::string> expected = {{"fc1/Linear", "Linear"},    {"fc2/Linear", "Linear"},
                                                       {"fc1/weight", "Parameter"}, {"fc1/bias", "Parameter"},
                                                       {"fc2/weight", "Parameter"}, {"fc2/bias", "Parameter"}};
  EXPECT_EQ(ops, expected);
  EXPECT_EQ(inputs["fc2/Linear"], (std::vector<std::string>{"fc1/Linear", "fc2/weight", "fc2/bias"}));
  EXPECT_EQ(inputs["fc1/Linear"], (std::vector<std::string>{"fc1/weight", "fc1/bias"}));
  // A resumed run writes it no second time.
  run.run.resume = "true";
  run.train.max_steps = 4;
  fit(2, run, with_units);
  for_each_value("run", [&](std::int64_t, const std::string& tag, std::uint32_t, auto) { graphs += tag == "graph"; });
  EXPECT_EQ(graphs, 2) << "one more than before, of the same record";
}

}  // namespace
}  // namespace reigen::train
