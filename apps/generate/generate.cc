#include "generate/generate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "reigen/base/error.h"
#include "reigen/train/trained_decoder.h"
#include "train/run/failure.h"
#include "train/run/printable.h"
#include "usage.h"

namespace reigen::apps {

namespace {

struct Line {
  std::string folder;
  std::string prompt;
  std::int64_t tokens = 200;
  models::SamplingOptions sampling;
  bool help = false;
};

Line parse_line(std::vector<std::string> arguments) {
  Line line;
  CLI::App app("Continues a text with a decoder that was trained, and prints what follows the text.",
               "reigen generate");
  app.add_option("DIR", line.folder, "directory of a run of gpt or llama, or a folder of Hugging Face")->required();
  app.add_option("--prompt", line.prompt, "the text to continue")->required();
  app.add_option("--tokens", line.tokens, "most tokens to add (default 200)");
  CLI::Option* const greedy = app.add_flag("--greedy", line.sampling.greedy, "always the most likely token");
  const auto add = [&](const char* name, auto& value, const char* meaning) {
    app.add_option(name, value, meaning)->excludes(greedy);
  };
  add("--temperature", line.sampling.temperature, "below 1 likely tokens become likelier, above 1 unlikely ones");
  add("--top-k", line.sampling.top_k, "draw from the K most likely tokens only");
  add("--top-p", line.sampling.top_p, "draw from the fewest tokens that have the probability P together");
  add("--seed", line.sampling.seed, "the same seed gives the same text (default 0)");
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    line.help = true;
  } catch (const CLI::ParseError& error) {
    throw usage_error(error, "reigen generate --help lists the options");
  }
  if (!line.help && (line.tokens < 1 || line.tokens > 1'000'000)) {
    throw InvalidArgument(Report{.what = "--tokens is out of range",
                                 .got = std::to_string(line.tokens),
                                 .expected = "1 to 1000000",
                                 .fix = "give another number"});
  }
  if (!line.help && app.count("--top-k") > 0 && line.sampling.top_k < 1) {
    throw InvalidArgument(Report{.what = "--top-k is out of range",
                                 .got = std::to_string(line.sampling.top_k),
                                 .expected = "at least 1",
                                 .fix = "leave it out to draw from all tokens"});
  }
  return line;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) throw IoError("cannot write the text to the output");
}

}  // namespace

int generate_text(const std::vector<std::string>& arguments) {
  try {
    const Line line = parse_line(arguments);
    if (line.help) return 0;
    models::TokenSampler checked(line.sampling);  // before the weights are read, which may take long
    train::TrainedDecoder decoder(line.folder);
    train::PrintableText text;
    decoder.generate(line.prompt, line.tokens, line.sampling, [&](std::string_view bytes) { print(text.take(bytes)); });
    print(text.finish() + "\n");
    return 0;
  } catch (...) {
    return train::report(train::failure_of(std::current_exception()), 0, 1);
  }
}

}  // namespace reigen::apps
