#include "reigen/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/variables.h"
#include "config/reading.h"
#include "reigen/base/error.h"
#include "reigen/config/command_line.h"

namespace reigen::config {
namespace {

using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("reigen_config_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& text) {
    const auto path = directory_ / "options.toml";
    std::ofstream(path) << text;
    return path.string();
  }

  std::filesystem::path directory_;
};

TEST_F(ConfigTest, FlagsAreReadInBothSpellings) {
  const auto line = read({"--train.epochs", "3", "--optim.lr=0.5", "--run.save_initial", "--data.path", "-odd name"});
  EXPECT_EQ(line.config.train.epochs, 3);
  EXPECT_EQ(line.config.optim.lr, 0.5);
  EXPECT_TRUE(line.config.run.save_initial);
  EXPECT_EQ(line.config.data.path, "-odd name");
  EXPECT_FALSE(line.config.train.global_batch.has_value());
}

TEST_F(ConfigTest, AProgramHasOptionsOfItsOwnInModelDataAndItsOwnSections) {
  Config program;
  program.model.options = {
      {"dim", 8, "width"}, {"data.noise", 0.5, "in a picture"}, {"loss.kind", std::string("l1"), ""}};
  const Config config = read_command_line(program, {"--data.noise", "0.25", "--data.limit", "9", "--loss.kind", "l2"},
                                          {{"REIGEN_MODEL_DIM", "4"}})
                            .config;
  EXPECT_EQ(config.model.real("data.noise"), 0.25);
  EXPECT_EQ(config.model["dim"], 4);
  EXPECT_EQ(config.model.text("loss.kind"), "l2");
  EXPECT_EQ(config.data.limit, 9);
  EXPECT_EQ(read_command_line(program, {}, {{"REIGEN_DATA_NOISE", "2"}}).config.model.real("data.noise"), 2);
  const std::string toml = to_toml(config);
  EXPECT_EQ(toml.find("[data]"), toml.rfind("[data]")) << toml;
  for (const char* taken : {"data.path", "data.limit", "data.tokenizer", "train.noise"}) {
    Config wrong;
    wrong.model.options = {{taken, 1, ""}};
    EXPECT_THROW(read_command_line(wrong, {}, {}), InvalidArgument) << taken;
  }
}

TEST_F(ConfigTest, WhatARecipeChoseForItsOptimizerIsNotForAnother) {
  Config recipe;
  recipe.optim.lr = 3e-4;
  recipe.optim.warmup_steps = 500;
  const auto with = [&](const std::vector<std::string>& arguments) {
    return read_command_line(recipe, arguments, {}).config.optim;
  };
  EXPECT_EQ(with({}).lr, 3e-4);
  EXPECT_EQ(with({"--optim.name", "adamw"}).lr, 3e-4);
  EXPECT_EQ(with({"--optim.name", "lars"}).lr, std::nullopt);
  EXPECT_EQ(with({"--optim.name", "lars", "--optim.lr", "2"}).lr, 2.0);
  EXPECT_EQ(with({"--optim.name", "sgd"}).weight_decay, std::nullopt);
  EXPECT_EQ(with({"--optim.name", "sgd"}).warmup_steps, 500);
  EXPECT_EQ(with({"--optim.schedule", "one_cycle"}).warmup_steps, 0);
  EXPECT_EQ(with({"--optim.schedule", "one_cycle", "--optim.warmup_steps", "7"}).warmup_steps, 7);
}

TEST_F(ConfigTest, ABareSwitchIsTrueAndTakesAnExplicitValue) {
  EXPECT_TRUE(read({"--run.save_initial", "--train.epochs", "2"}).config.run.save_initial);
  EXPECT_FALSE(read({"--run.save_initial", "false"}).config.run.save_initial);
  EXPECT_EQ(failure_of({"--run.save_initial", "perhaps"}).code, ExitCode::kConfiguration);
}

TEST_F(ConfigTest, LaterSourcesWin) {
  const auto path = write("[train]\nepochs = 2\nseed = 2\nlog_every = 2\n");
  const auto line =
      read({"--train.epochs", "4", "--config", path}, {{"REIGEN_TRAIN_EPOCHS", "3"}, {"REIGEN_TRAIN_SEED", "3"}});
  EXPECT_EQ(line.config.train.epochs, 4);           // flag
  EXPECT_EQ(line.config.train.seed, 3);             // environment
  EXPECT_EQ(line.config.train.log_every, 2);        // file
  EXPECT_EQ(line.config.optim.rule.name, "adamw");  // default
}

TEST_F(ConfigTest, PrintedConfigurationReadsBackEqual) {
  Config config = read({"--train.global_batch", "97", "--optim.lr", "1e-05", "--optim.weight_decay", "3", "--data.path",
                        "a \"quoted\" \\ path\twith\nlines", "--run.resume", "true", "--train.precision", "fp64"})
                      .config;
  const auto path = write(to_toml(config));
  const Config again = read({"--config", path}).config;
  EXPECT_EQ(to_toml(again), to_toml(config));
  EXPECT_EQ(hash_of(again), hash_of(config));
  EXPECT_EQ(again.optim.lr, 1e-05);
  EXPECT_EQ(again.train.global_batch, 97);
  EXPECT_NE(hash_of(Config{}), hash_of(config));
}

TEST_F(ConfigTest, EveryFieldIsReadPrintedAndExplained) {
  Config config;
  const std::string help = help_text(config);
  for (const Field& field : fields(config)) {
    EXPECT_THAT(help, HasSubstr("--" + field.name()));
    EXPECT_FALSE(field.meaning.empty()) << field.name();
    // A switch without a value is true. An optimizer that does not have the switch refuses it.
    const bool needs_a_value = failure_of({"--" + field.name()}).code == ExitCode::kUsage;
    EXPECT_EQ(needs_a_value, !field.is_switch()) << field.name();
  }
}

// The variable of an option that only a recipe reads must not be reported as unknown.
TEST_F(ConfigTest, TheVariableOfEveryFieldIsKnown) {
  Config config;
  config.model.options = {{"dim", 8, "width"}, {"loss.rate", 1, "of a section of the recipe's own"}};
  for (const Field& field : fields(config)) {
    const std::string variable = base::variable_of(field);
    const bool is_set = std::getenv(variable.c_str()) != nullptr;
    if (!is_set) ::setenv(variable.c_str(), "1", 1);
    const auto unknown = base::unknown_variables();
    if (!is_set) ::unsetenv(variable.c_str());
    const auto is_it = [&](const base::UnknownVariable& other) { return other.name == variable; };
    EXPECT_TRUE(std::none_of(unknown.begin(), unknown.end(), is_it)) << variable;
  }
}

TEST_F(ConfigTest, DurationsAndWhatNeedsAMonitorAreChecked) {
  EXPECT_EQ(failure_of({"--validate.every", "2 weeks"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--train.max_time", "2 epochs"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--run.fast_dev", "2", "--run.dir", "runs/a"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--checkpoint.every", "soon"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--log.histograms", "often"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--log.images", "4", "--log.tensorboard", "false"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--log.histograms", "5", "--log.tensorboard", "false"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--checkpoint.every", "5", "--checkpoint.every_steps", "5"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--stop.patience", "7"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--checkpoint.mode", "max"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(failure_of({"--checkpoint.top_k", "5"}).code, ExitCode::kConfiguration);
  EXPECT_EQ(read({"--stop.patience", "7", "--stop.monitor", "test_loss", "--validate.every", "0.5 epochs"})
                .config.stop.patience,
            7);
}

TEST_F(ConfigTest, HelpFitsATerminal) {
  std::istringstream help(help_text(Config{}));
  for (std::string line; std::getline(help, line);) EXPECT_LT(line.size(), 80U) << line;
  EXPECT_THAT(help_text(Config{}), HasSubstr("\n  -n N                     ranks that"));
}

TEST_F(ConfigTest, ResumeMayBeABooleanInAFile) {
  EXPECT_EQ(read({"--config", write("run.resume = true\n")}).config.run.resume, "true");
  EXPECT_EQ(read({"--config", write("[run]\nresume = \"runs/a\"\n")}).config.run.resume, "runs/a");
}

TEST_F(ConfigTest, ValuesOutOfRangeAreRefusedWithTheirOrigin) {
  const struct {
    std::vector<std::string> arguments;
    std::string text;
  } kCases[] = {
      {{"--train.epochs", "-1"}, "train.epochs = -1: must be a whole number of at least 1"},
      {{"--train.epochs", "two"}, "train.epochs = two: must be a whole number"},
      {{"--train.epochs", "1.5"}, "train.epochs = 1.5: must be a whole number"},
      {{"--train.epochs", "99999999999999999999"}, "must be a whole number"},
      {{"--train.global_batch", "0"}, "train.global_batch = 0: must be a whole number of at least 1"},
      {{"--optim.lr", "-1"}, "optim.lr = -1: must be a number above 0"},
      {{"--optim.lr", "0"}, "optim.lr = 0: must be a number above 0"},
      {{"--optim.lr", "nan"}, "optim.lr = nan: must be"},
      {{"--optim.lr", "inf"}, "optim.lr = inf: must be"},
      {{"--train.precision", "fp8"}, "train.precision = fp8: must be fp32, fp64"},
      {{"--optim.momentum", "0.9"}, "adamw has no momentum"},
      {{"-n", "0"}, "-n 0: must be"},
  };
  for (const auto& c : kCases) {
    const Failure failure = failure_of(c.arguments);
    EXPECT_EQ(failure.code, ExitCode::kConfiguration) << failure.text;
    EXPECT_THAT(failure.text, HasSubstr(c.text));
  }
  const std::string text = failure_of({"--train.epochs", "-1"}).text;
  EXPECT_THAT(text, HasSubstr("correct flag --train.epochs"));
  EXPECT_EQ(text.find("at least 1"), text.rfind("at least 1")) << text;
  EXPECT_THAT(failure_of({}, {{"REIGEN_TRAIN_EPOCHS", "-1"}}).text,
              HasSubstr("environment variable REIGEN_TRAIN_EPOCHS"));
  EXPECT_THAT(failure_of({"--config", write("[train]\nepochs = -1\n")}).text, HasSubstr("options.toml:2:10"));
}

TEST_F(ConfigTest, UnknownKeysAreRefusedWithASuggestion) {
  const Failure flag = failure_of({"--train.epoch", "3"});
  EXPECT_EQ(flag.code, ExitCode::kUsage);
  EXPECT_THAT(flag.text, HasSubstr("unknown option --train.epoch"));
  EXPECT_THAT(flag.text, HasSubstr("did you mean --train.epochs?"));
  EXPECT_THAT(failure_of({"--epochs", "3"}).text, HasSubstr("did you mean --train.epochs?"));
  EXPECT_THAT(failure_of({"--data", "x"}).text, HasSubstr("did you mean --data."));
  EXPECT_THAT(failure_of({"--quite.something=3"}).text, HasSubstr("--help lists the options"));
  EXPECT_THAT(failure_of({"stray"}).text, HasSubstr("unknown argument stray"));

  const Failure file = failure_of({"--config", write("[train]\nepoch = 3\n")});
  EXPECT_EQ(file.code, ExitCode::kConfiguration);
  EXPECT_THAT(file.text, HasSubstr("options.toml:2:1: unknown key train.epoch"));
  EXPECT_THAT(file.text, HasSubstr("did you mean train.epochs?"));
  EXPECT_THAT(failure_of({"--config", write("[trian]\nepochs = 3\n")}).text, HasSubstr("did you mean train?"));

  const Failure variable = failure_of({}, {{"REIGEN_TRAIN_EPOCH", "3"}, {"REIGEN_LOG", "info"}});
  EXPECT_EQ(variable.code, ExitCode::kConfiguration);
  EXPECT_THAT(variable.text, HasSubstr("did you mean REIGEN_TRAIN_EPOCHS?"));
  // Kubernetes sets these variables for a service called reigen-train; they are not options of the user.
  EXPECT_EQ(read({}, {{"REIGEN_TRAIN_SERVICE_HOST", "10.0.0.1"},
                      {"REIGEN_TRAIN_SERVICE_PORT", "80"},
                      {"REIGEN_TRAIN_SERVICE_PORT_HTTP", "80"},
                      {"REIGEN_TRAIN_PORT", "tcp://10.0.0.1:80"},
                      {"REIGEN_TRAIN_PORT_80_TCP", "tcp://10.0.0.1:80"},
                      {"REIGEN_TRAIN_PORT_80_TCP_PROTO", "tcp"},
                      {"REIGEN_TRAIN_PORT_80_TCP_ADDR", "10.0.0.1"},
                      {"REIGEN_TRAIN_EPOCHS", "7"}})
                .config.train.epochs,
            7);
  EXPECT_THAT(failure_of({}, {{"REIGEN_TRAIN_PORT", "80"}}).text, HasSubstr("unknown environment variable"));
}

TEST_F(ConfigTest, AModelsSizesAreOptionsOfItsRecipeOnly) {
  Config defaults;
  defaults.model.options = {{"layers", 6, "layers of it"}, {"vocab", 0, "tokens", 0}};
  const auto read_model = [&](const std::vector<std::string>& arguments, const Environment& environment = {}) {
    return read_command_line(defaults, arguments, environment).config;
  };
  EXPECT_EQ(read_model({}).model["layers"], 6);
  EXPECT_EQ(read_model({"--model.layers", "2"}).model["layers"], 2);
  EXPECT_EQ(read_model({}, {{"REIGEN_MODEL_LAYERS", "3"}}).model["layers"], 3);
  const Config config = read_model({"--config", write("[model]\nlayers = 4\nvocab = 7\n")});
  EXPECT_EQ(config.model["layers"], 4);
  EXPECT_EQ(config.model["vocab"], 7);
  EXPECT_EQ(to_toml(read_model({"--config", write(to_toml(config))})), to_toml(config));
  EXPECT_NE(hash_of(config), hash_of(defaults));
  EXPECT_THAT(help_text(defaults), HasSubstr("--model.layers"));
  EXPECT_THAT(help_text(Config{}), ::testing::Not(HasSubstr("--model.")));
  EXPECT_THROW(config.model["heads"], InternalError);
  EXPECT_THAT(failure_of({"--model.layers", "2"}).text, HasSubstr("unknown option --model.layers"));
  EXPECT_EQ(failure_of({"--config", write("[model]\nlayers = 4\n")}).code, ExitCode::kConfiguration);
  EXPECT_THAT(failure_of({}, {{"REIGEN_MODEL_LAYERS", "3"}}).text, HasSubstr("unknown environment variable"));
  EXPECT_THROW(read_model({"--model.layers", "0"}), InvalidArgument);
}

TEST_F(ConfigTest, ARecipesOwnOptionsAreOfEveryKindAndMayHaveASectionOfTheirOwn) {
  Config defaults;
  defaults.model.options = {{.key = "rate", .value = 0.5, .meaning = "a share", .low = 0, .high = 1},
                            {.key = "loss.kind", .value = "mean", .meaning = "of the loss", .choices = {"mean", "sum"}},
                            {.key = "deep", .value = false, .meaning = "a switch"},
                            {.key = "loss.shift", .value = -2.0, .meaning = "added"}};
  const auto read_own = [&](const std::vector<std::string>& arguments, const Environment& environment = {}) {
    return read_command_line(defaults, arguments, environment).config;
  };
  EXPECT_EQ(read_own({}).model.real("rate"), 0.5);
  EXPECT_EQ(read_own({"--model.rate", "1"}).model.real("rate"), 1.0);
  EXPECT_EQ(read_own({"--loss.kind", "sum"}).model.text("loss.kind"), "sum");
  EXPECT_EQ(read_own({}, {{"REIGEN_MODEL_LOSS_SHIFT", "1e3"}}).model.real("loss.shift"), 1000.0);
  EXPECT_TRUE(read_own({"--model.deep"}).model.flag("deep"));
  const Config config = read_own({"--config", write("[model]\ndeep = true\n[loss]\nkind = 'sum'\nshift = 3\n")});
  EXPECT_TRUE(config.model.flag("deep"));
  EXPECT_EQ(config.model.real("loss.shift"), 3.0);
  EXPECT_EQ(to_toml(read_own({"--config", write(to_toml(config))})), to_toml(config));
  EXPECT_THAT(help_text(defaults), HasSubstr("--loss.kind mean|sum"));
  EXPECT_THROW(read_own({"--model.rate", "1.5"}), InvalidArgument);
  EXPECT_THROW(read_own({"--loss.kind", "max"}), InvalidArgument);
  EXPECT_THROW(config.model["rate"], InternalError);  // the value has another type
  try {
    read_own({"--loss.kidn", "sum"});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean --loss.kind?"));
  }
}

TEST_F(ConfigTest, NamesOfOwnOptionsThatAreNoFlagsOrAreTakenAreRefused) {
  for (const char* key : {"", "a b", "Rate", "a.b.c", ".a", "train.rate", "optim.lr"}) {
    Config defaults;
    defaults.model.options = {{.key = key, .value = 1.0}};
    EXPECT_THROW(read_command_line(defaults, {}, {}), InvalidArgument) << key;
  }
  Config twice;
  twice.model.options = {{.key = "rate"}, {.key = "model.rate"}};
  EXPECT_THROW(read_command_line(twice, {}, {}), InvalidArgument);
  twice.model.options = {{.key = "rate"}, {.key = "rate"}};
  EXPECT_THROW(read_command_line(twice, {}, {}), InvalidArgument);
}

TEST_F(ConfigTest, AProgramThatReadsNoFileHasNoPath) {
  Config defaults;
  defaults.data.takes_path = false;
  EXPECT_THAT(help_text(defaults), ::testing::Not(HasSubstr("--data.path")));
  EXPECT_THROW(read_command_line(defaults, {"--data.path", "x"}, {}), InvalidArgument);
}

TEST_F(ConfigTest, OnlyProgramsOnTextHaveATokenizer) {
  Config defaults;
  EXPECT_THAT(help_text(defaults), ::testing::Not(HasSubstr("--data.tokenizer")));
  defaults.data.takes_tokenizer = true;
  EXPECT_THAT(help_text(defaults), HasSubstr("--data.tokenizer"));
  const auto line = read_command_line(defaults, {"--data.tokenizer", "x.json", "--data.word_pattern=llama3"}, {});
  EXPECT_EQ(line.config.data.tokenizer, "x.json");
  EXPECT_EQ(line.config.data.word_pattern, "llama3");
}

TEST_F(ConfigTest, BadFilesAreRefused) {
  EXPECT_EQ(failure_of({"--config", (directory_ / "absent.toml").string()}).code, ExitCode::kInputMissing);
  EXPECT_EQ(failure_of({"--config", directory_.string()}).code, ExitCode::kBadData);
  const Failure syntax = failure_of({"--config", write("[train]\nepochs = \n")});
  EXPECT_EQ(syntax.code, ExitCode::kConfiguration);
  EXPECT_THAT(syntax.text, HasSubstr("options.toml:2:"));
  EXPECT_EQ(failure_of({"--config", write(std::string((1 << 20) + 1, '#'))}).code, ExitCode::kBadData);
  EXPECT_THAT(failure_of({"--config", write("[train]\nepochs = \"3\"\n")}).text,
              HasSubstr("train.epochs = \"3\": must be a whole number"));
  EXPECT_THAT(failure_of({"--config", write("train = 3\n")}).text, HasSubstr("train is a section"));
  EXPECT_EQ(failure_of({"--config"}).code, ExitCode::kUsage);
}

TEST_F(ConfigTest, HelpWinsOverErrors) {
  EXPECT_TRUE(read({"--train.epochs", "-1", "--help"}).help);
  EXPECT_TRUE(read({"--print-config"}).print_config);
  EXPECT_EQ(read({"-n", "3"}).ranks, 3);
}

TEST_F(ConfigTest, EveryOptimizerTakesItsOptionsAndTheyReadBack) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--optim.name", "sgd", "--optim.momentum", "0.9", "--optim.nesterov"},
           {"--optim.name", "adam", "--optim.beta1", "0.8", "--optim.beta2", "0.9", "--optim.eps", "1e-6"},
           {"--optim.name", "rmsprop", "--optim.alpha", "0.9", "--optim.centered", "--optim.momentum", "0.5"},
           {"--optim.name", "adagrad", "--optim.lr_decay", "0.1"},
           {"--optim.name", "lion", "--optim.bf16_states", "--optim.no_decay", "@vectors,*norm*"},
           {"--optim.name", "lars", "--optim.trust_coefficient", "0.002", "--optim.no_adapt", "none"},
           {"--optim.name", "lamb", "--optim.lr_factors", "head.*=10"},
           {"--optim.momentum", "0"},
           {"--optim.schedule", "one_cycle", "--optim.pct_start", "0.2", "--optim.div_factor", "10"},
           {"--optim.schedule", "multi_step", "--optim.milestones", "1000, 2000", "--optim.gamma", "0.5"}}) {
    const Config config = read(arguments).config;
    const Config again = read({"--config", write(to_toml(config))}).config;
    EXPECT_EQ(to_toml(again), to_toml(config));
  }
}

TEST_F(ConfigTest, WhatAProgramToldByTypeHoldsAsLongAsItsNameStays) {
  Config program;
  program.optim.rule = optim::AdamWOptions{.lr = 3e-4, .betas = {0.8, 0.9}};
  program.optim.schedule = optim::ScheduleOf<optim::Schedule::kCosine>{.options = {.min_factor = 0.1}};
  program.parallel.strategy = parallel::PowerSgdOptions{.rank = 4};
  const auto read_over = [&](const std::vector<std::string>& arguments) {
    return read_command_line(program, arguments, {}).config;
  };
  const Config same = read_over({"--optim.eps", "1e-6"});
  EXPECT_EQ(same.optim.rule.of<optim::AdamWOptions>().betas.first, 0.8);
  EXPECT_EQ(same.optim.rule.of<optim::AdamWOptions>().eps, 1e-6);
  EXPECT_THAT(to_toml(same),
              ::testing::AllOf(HasSubstr("lr = 0.0003"), HasSubstr("beta1 = 0.8"), HasSubstr("eps = 1e-06"),
                               HasSubstr("min_lr_factor = 0.1"), HasSubstr("matrix_rank = 4")));
  EXPECT_EQ(to_toml(read({"--config", write(to_toml(same))}).config), to_toml(same));
  const Config other =
      read_over({"--optim.name", "adam", "--optim.schedule", "constant", "--parallel.strategy", "plain"});
  EXPECT_EQ(other.optim.rule.of<optim::AdamOptions>().betas.first, 0.9) << "another optimizer has its own";
  EXPECT_THAT(to_toml(other), HasSubstr("# beta1 is not set"));
  EXPECT_EQ(read_over({"--optim.name", "sgd"}).optim.rule.name, "sgd");
  Config plain;
  plain.optim.rule = optim::SGDOptions{.lr = 0.1};
  EXPECT_EQ(read_command_line(plain, {}, {}).config.optim.rule.name, "sgd") << "an option that is as ever is not told";
}

TEST_F(ConfigTest, ANameThatIsNoneIsRefusedHoweverItCame) {
  for (const auto& spoil : std::vector<void (*)(Config&)>{[](Config& c) { c.optim.rule.name = "adamW"; },
                                                          [](Config& c) { c.optim.schedule.name = "cosin"; },
                                                          [](Config& c) { c.parallel.strategy.name = "locl_sgd"; }}) {
    Config program;
    spoil(program);
    EXPECT_THROW(read_command_line(program, {}, {}), InvalidArgument);
  }
}

// The values that an option has by default are allowed with every value of the option that decides about it.
TEST_F(ConfigTest, DefaultsOfOptionsThatBelongToAnotherValueAreAllowed) {
  EXPECT_EQ(
      failure_of({"--parallel.gather_type", "own", "--parallel.reduce_type", "own", "--parallel.unit_size", "0",
                  "--parallel.replicas", "1", "--parallel.reshard_to", "0", "--parallel.reshard_after_forward", "true"})
          .code,
      ExitCode::kOk);
  const std::string help = help_text(Config{});
  EXPECT_THAT(help, HasSubstr("with shard parameters: "));
  EXPECT_THAT(help, HasSubstr("for sgd, rmsprop, lars: "));
}

// Adasum of gradients keeps the ranks' weights equal, so they may be sharded. Adasum of steps does not.
TEST_F(ConfigTest, WhetherAdasumActsOnWeightsDependsOnWhatItIsOf) {
  const std::vector<std::string> divided = {"--parallel.strategy", "adasum", "--parallel.shard", "optimizer"};
  EXPECT_THAT(failure_of(divided).text, HasSubstr("do not go together"));
  auto of_gradients = divided;
  of_gradients.insert(of_gradients.end(), {"--parallel.adasum_of", "gradients"});
  EXPECT_EQ(failure_of(of_gradients).code, ExitCode::kOk);
}

TEST_F(ConfigTest, MilestonesAreStepsOrEpochs) {
  const auto milestones = [](const std::string& text) {
    const Config config = read({"--optim.schedule", "multi_step", "--optim.milestones", text}).config;
    return config.optim.schedule.of<optim::ScheduleOf<optim::Schedule::kMultiStep>>().milestones;
  };
  for (const char* text : {"1000,2000", "1000, 2000", "1000 , 2000 "}) {
    EXPECT_THAT(milestones(text), ::testing::ElementsAre(Duration{1000}, Duration{2000})) << text;
  }
  EXPECT_THAT(milestones("30 epochs,60 epochs"),
              ::testing::ElementsAre(Duration{30, Duration::Unit::kEpochs}, Duration{60, Duration::Unit::kEpochs}));
  for (const char* text : {"30 epochs, 20 epochs", "30 epochs, 400", "90 s", "0"}) {
    EXPECT_EQ(failure_of({"--optim.schedule", "multi_step", "--optim.milestones", text}).code, ExitCode::kConfiguration)
        << text;
  }
  EXPECT_THAT(failure_of({"--optim.schedule", "multi_step", "--optim.milestones", ""}).text,
              HasSubstr("needs optim.milestones"));
  EXPECT_THAT(failure_of({"--config", write("[optim]\nschedule = \"multi_step\"\nmilestones = \"\"\n")}).text,
              HasSubstr("needs optim.milestones"));
  // A program may give steps as numbers.
  Config program;
  program.optim.schedule = optim::ScheduleOf<optim::Schedule::kMultiStep>{{.milestones = {5, 9}}};
  EXPECT_THAT(to_toml(read_command_line(program, {}, {}).config), HasSubstr("milestones = \"5, 9\""));
}

TEST_F(ConfigTest, AWarmUpIsStepsOrEpochsAndMayBeginAboveZero) {
  const auto with = [](const std::vector<std::string>& arguments) {
    Config recipe;
    recipe.optim.warmup_steps = 500;
    return read_command_line(recipe, arguments, {}).config.optim;
  };
  EXPECT_EQ(with({"--optim.warmup", "5 epochs"}).warmup, "5 epochs");
  EXPECT_EQ(with({"--optim.warmup", "5 epochs"}).warmup_steps, 0) << "the recipe's own warm-up is replaced";
  EXPECT_EQ(with({"--optim.warmup_from", "0.1"}).warmup_from, 0.1);
  EXPECT_EQ(with({"--optim.warmup_from", "0.1"}).warmup_steps, 500);
  Config recipe;
  recipe.optim.warmup = "2 epochs";
  EXPECT_EQ(read_command_line(recipe, {}, {}).config.optim.warmup, "2 epochs");
  const OptimConfig told = read_command_line(recipe, {"--optim.warmup_steps", "7"}, {}).config.optim;
  EXPECT_EQ(told.warmup_steps, 7);
  EXPECT_EQ(told.warmup, "");
  EXPECT_EQ(read_command_line(recipe, {"--optim.schedule", "one_cycle"}, {}).config.optim.warmup, "");

  EXPECT_THAT(failure_of({"--optim.warmup", "90 s"}).text, HasSubstr("optim.warmup is no number of steps or epochs"));
  EXPECT_THAT(failure_of({"--optim.warmup", "90", "--optim.warmup_steps", "90"}).text, HasSubstr("say the same"));
  EXPECT_THAT(failure_of({"--optim.warmup_from", "0.1"}).text, HasSubstr("needs optim.warmup"));
  EXPECT_EQ(failure_of({"--optim.warmup", "9", "--optim.warmup_from", "-1"}).code, ExitCode::kConfiguration);
  const Config config = read({"--optim.warmup", "5 epochs", "--optim.warmup_from", "0.1"}).config;
  EXPECT_EQ(to_toml(read({"--config", write(to_toml(config))}).config), to_toml(config));
}

TEST_F(ConfigTest, LabelsAreSmoothedWhereThereAreClasses) {
  Config recipe;
  recipe.train.takes_label_smoothing = true;
  EXPECT_EQ(read_command_line(recipe, {"--train.label_smoothing", "0.1"}, {}).config.train.label_smoothing, 0.1);
  EXPECT_THROW(read_command_line(recipe, {"--train.label_smoothing", "1"}, {}), InvalidArgument);
  EXPECT_EQ(failure_of({"--train.label_smoothing", "0.1"}).code, ExitCode::kUsage) << "no classes, no option";
}

// A file printed by an earlier version has a line for every switch and text, also for those of other optimizers.
TEST_F(ConfigTest, LinesOfWhatTheChosenOptimizerLacksMaySayNothing) {
  const auto path = write(
      "[optim]\nname = \"lion\"\nnesterov = false\ncentered = false\namsgrad = false\nmilestones = \"\"\n"
      "no_adapt = \"\"\n[parallel]\ntopology = \"ring\"\n");
  EXPECT_EQ(read({"--config", path}).config.optim.rule.name, "lion");
}

}  // namespace
}  // namespace reigen::config
