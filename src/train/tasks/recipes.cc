#include "train/tasks/recipes.h"

#include "reigen/train/decoder_task.h"
#include "reigen/train/mlp_task.h"
#include "reigen/train/mnist_task.h"
#include "reigen/train/picture_data.h"
#include "reigen/train/resnet18_task.h"
#include "reigen/train/resnet_task.h"
#include "train/tasks/imagenet.h"
#include "train/tasks/kernels_option.h"

namespace reigen::train {

namespace {

constexpr const char* kDigits =
    "a folder with the four files of MNIST's form (IDX), plain or .gz;\n"
    "  without it: digits that the program draws";

constexpr const char* kText =
    "a text file of any name, or a folder of *.txt and *.md, plain or .gz, of\n"
    "  which a tenth is for validation; without it: Reigen's documents";

constexpr std::int64_t kMostLayers = 1000;

c10::ScalarType type_of(const Config& config) { return config.train.precision == "fp64" ? c10::kDouble : c10::kFloat; }

// Epochs, learning rate and warm-up of a recipe. With the full learning rate from the first step on, AdamW would turn
// rounding differences between layouts into large differences. How long the warm-up must be depends on the model
// (docs/decisions/0005-rounding-and-the-first-steps.md).
struct Pace {
  std::int64_t epochs = 1;
  double lr = 1e-3;
  std::int64_t warmup_steps = 100;
};

Config defaults(const Pace& pace, std::vector<ModelOption> model = {}) {
  Config config;
  config.train.epochs = pace.epochs;
  config.optim.lr = pace.lr;
  config.optim.warmup_steps = pace.warmup_steps;
  config.model.options = std::move(model);
  return config;
}

// The defaults of a recipe that sorts samples into classes.
Config class_defaults(const Pace& pace, std::vector<ModelOption> model = {}) {
  Config config = defaults(pace, std::move(model));
  config.train.takes_label_smoothing = true;
  return config;
}

// The defaults of a recipe on text.
Config text_defaults(std::vector<ModelOption> model) {
  Config config = defaults({.epochs = 5}, std::move(model));
  config.data.takes_tokenizer = true;
  return config;
}

Recipe mnist() {
  return {.name = "mnist",
          .summary = "a convolutional network on digits, MNIST's files or drawn",
          .data = kDigits,
          .defaults = class_defaults({.epochs = 3}),
          .batch_per_rank = 64,
          .make = [](const Config& config, bool without_memory) {
            return as_both(std::make_shared<MnistTask>(MnistOptions{.path = config.data.path,
                                                                    .type = type_of(config),
                                                                    .without_memory = without_memory,
                                                                    .label_smoothing = config.train.label_smoothing}));
          }};
}

Recipe mlp() {
  return {.name = "mlp",
          .summary = "a perceptron of 8 layers on the same digits",
          .data = kDigits,
          .defaults = class_defaults({.epochs = 3, .lr = 3e-4, .warmup_steps = 500},
                                     {{"layers", 8, "hidden layers", 1, kMostLayers}, {"dim", 1024, "width of each"}}),
          .batch_per_rank = 32,
          .make = [](const Config& config, bool without_memory) {
            return as_both(std::make_shared<MlpTask>(MlpTaskOptions{.path = config.data.path,
                                                                    .type = type_of(config),
                                                                    .without_memory = without_memory,
                                                                    .layers = config.model["layers"],
                                                                    .dim = config.model["dim"],
                                                                    .label_smoothing = config.train.label_smoothing}));
          }};
}

Recipe resnet18() {
  return {.name = "resnet18",
          .summary = "ResNet-18 on small colour pictures in classes, from folders or drawn",
          .data =
              "a folder with train/ and test/ (or val/), or without: one folder a class,\n"
              "  of JPEG and PNG files; or with containers train.* and test.*;\n"
              "  without it: pictures that the program draws",
          .defaults = class_defaults(
              {.epochs = 5, .warmup_steps = 500},
              {{"width", 64, "channels of the first stage"},
               {"norm_batch", 32, "samples that batch normalisation takes together; 0: all of a rank's batch", 0},
               kernels_option(kResNetOperations)}),
          .batch_per_rank = 32,
          .make = [](const Config& config, bool without_memory) {
            return as_both(
                std::make_shared<ResNet18Task>(ResNet18TaskOptions{.path = config.data.path,
                                                                   .type = type_of(config),
                                                                   .without_memory = without_memory,
                                                                   .width = config.model["width"],
                                                                   .norm_batch = config.model["norm_batch"],
                                                                   .kernels = kernels_of(config),
                                                                   .label_smoothing = config.train.label_smoothing}));
          }};
}

Recipe resnet50() {
  Config config = imagenet_defaults();
  for (ModelOption& option : picture_options()) config.model.options.push_back(std::move(option));
  return {.name = "resnet50",
          .summary = "ResNet of 18 to 152 layers on photos in classes, as for ImageNet",
          .data =
              "a folder with train.* and val.*, each a container (LMDB, HDF5, TFRecord,\n"
              "  tar) or a folder of class folders; or one of these, of which a tenth is for\n"
              "  validation; without it: photos that the program draws",
          .defaults = std::move(config),
          .batch_per_rank = 32,
          .samples = kImageNetSamples,
          .make = [](const Config& options, bool without_memory) {
            const auto data = std::make_shared<PictureData>(PictureDataOptions{
                .path = options.data.path,
                .size = options.model["data.size"],
                .augment = options.model.flag("data.augment"),
                .fast_decode = options.model.text("data.decode") == "fast",
                .mixing = {.mixup = options.model.real("data.mixup"), .cutmix = options.model.real("data.cutmix")},
                .classes = options.model["classes"]});
            const auto task =
                std::make_shared<ResNetTask>(ResNetTaskOptions{.model = resnet_options(options, data->classes()),
                                                               .type = type_of(options),
                                                               .without_memory = without_memory,
                                                               .label_smoothing = options.train.label_smoothing});
            return Training{.task = task, .data = data};
          }};
}

// What Reigen computes of a decoder by its own operations.
const char* const kDecoderOperations = "norms, activations, embedding and loss";

template <class DecoderTask, class Sizes>
Training decoder_task(const Config& config, bool without_memory, const Sizes& sizes) {
  return as_both(std::make_shared<DecoderTask>(
      DecoderTaskOptions<Sizes>{.path = config.data.path,
                                .tokenizer = config.data.tokenizer,
                                .pattern = format::word_pattern_of(config.data.word_pattern),
                                .type = type_of(config),
                                .without_memory = without_memory,
                                .seed = static_cast<std::uint64_t>(config.train.seed),
                                .model = sizes}));
}

Recipe gpt() {
  return {.name = "gpt",
          .summary = "a decoder on characters or tokens of a text, yours or Reigen's documents",
          .data = kText,
          .defaults = text_defaults(
              {{"layers", 6, "layers of attention and MLP", 1, kMostLayers},
               {"dim", 384, "width"},
               {"heads", 6, "heads of attention; must divide model.dim"},
               {"context", 256, "tokens of a window"},
               {"vocab", 0, "tokens; 0: as many as the tokenizer has, or the text has different bytes", 0},
               kernels_option(kDecoderOperations)}),
          .batch_per_rank = 8,
          .make = [](const Config& config, bool without_memory) {
            return decoder_task<GptTask>(config, without_memory, gpt_options(config));
          }};
}

Recipe llama() {
  return {.name = "llama",
          .summary = "a decoder of the Llama family on the same text",
          .data = kText,
          .defaults = text_defaults(
              {{"layers", 6, "layers of attention and MLP", 1, kMostLayers},
               {"dim", 384, "width"},
               {"heads", 6, "heads of queries; 2 x model.heads must divide model.dim"},
               {"kv_heads", 6, "heads of keys and values; must divide model.heads"},
               {"hidden", 1024, "features of the MLP"},
               {"context", 256, "tokens of a window"},
               {"vocab", 0, "tokens; 0: as many as the tokenizer has, or the text has different bytes", 0},
               {.key = "tied", .value = false, .meaning = "the last layer has the embedding's weight"},
               kernels_option(kDecoderOperations)}),
          .batch_per_rank = 8,
          .make = [](const Config& config, bool without_memory) {
            return decoder_task<LlamaTask>(config, without_memory, llama_options(config));
          }};
}

}  // namespace

models::GptOptions gpt_options(const Config& config) {
  return {.vocab = config.model["vocab"],
          .layers = config.model["layers"],
          .dim = config.model["dim"],
          .heads = config.model["heads"],
          .context = config.model["context"],
          .kernels = kernels_of(config)};
}

models::LlamaOptions llama_options(const Config& config) {
  return {.vocab = config.model["vocab"],
          .layers = config.model["layers"],
          .dim = config.model["dim"],
          .heads = config.model["heads"],
          .kv_heads = config.model["kv_heads"],
          .hidden = config.model["hidden"],
          .context = config.model["context"],
          .tied = config.model.flag("tied"),
          .kernels = kernels_of(config)};
}

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> kRecipes = {mnist(), mlp(), resnet18(), resnet50(), gpt(), llama()};
  return kRecipes;
}

}  // namespace reigen::train
