#include "reigen/train/decoder_task.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/philox.h"
#include "reigen/base/error.h"
#include "reigen/models/tensor_plan.h"
#include "reigen/nn/cross_entropy.h"
#include "reigen/parallel/tensor_operations.h"
#include "train/run/printable.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

namespace {

constexpr std::int64_t kSampleBytes = 160;
constexpr std::int64_t kSampleTokens = 40;

// The token of a byte, or -1.
std::int64_t token_of(const std::string& alphabet, char byte) {
  const std::size_t token = alphabet.find(byte);
  return token == std::string::npos ? -1 : static_cast<std::int64_t>(token);
}

// figures_of_classes() for scores of which each rank has its part of the vocabulary. No rank gathers them.
ClassFigures figures_of_parts(const at::Tensor& scores, const at::Tensor& target, const parallel::VocabPart& part,
                              const Communicator& group) {
  const at::Tensor loss = parallel::vocab_parallel_cross_entropy(scores.to(at::kDouble), target, part, group,
                                                                 {.ignore_index = data::kIgnoredToken, .sum = true});
  const auto [largest, place] = scores.max(1, /*keepdim=*/true);
  const at::Tensor of_ranks = parallel::gather_results(largest, 1, group).argmax(1, /*keepdim=*/true);
  const at::Tensor tokens = parallel::gather_results(place + part.first, 1, group).gather(1, of_ranks).squeeze(1);
  const at::Tensor count = target.ne(data::kIgnoredToken).sum();
  return {.accuracy = {.sum = tokens.eq(target).sum(), .count = count}, .loss = {.sum = loss, .count = count}};
}

}  // namespace

template <class M, class S>
DecoderTask<M, S>::DecoderTask(const DecoderTaskOptions<S>& options) : options_(options) {}

template <class M, class S>
const std::shared_ptr<const data::Corpus>& DecoderTask<M, S>::corpus() {
  if (!corpus_) {
    data::TokenizerPtr tokenizer;
    if (options_.tokenizer.empty() && options_.pattern != format::WordPattern::kAuto) {
      throw InvalidArgument(Report{.what = "data.word_pattern without data.tokenizer",
                                   .got = std::string(format::name_of(options_.pattern)),
                                   .expected = "a file of tiktoken as data.tokenizer",
                                   .fix = "give data.tokenizer, or leave data.word_pattern out"});
    }
    if (!options_.tokenizer.empty()) {
      tokenizer = std::make_shared<const format::Tokenizer>(
          format::Tokenizer::read(options_.tokenizer, {.pattern = options_.pattern}));
    }
    corpus_ = std::make_shared<const data::Corpus>(options_.path.empty() ? data::own_documents(tokenizer)
                                                                         : data::read_corpus(options_.path, tokenizer));
  }
  return corpus_;
}

template <class M, class S>
M& DecoderTask<M, S>::module() {
  if (model_) return *model_;
  S sizes = options_.model;
  const data::Encoding& encoding = corpus()->encoding();
  if (sizes.vocab == 0) sizes.vocab = encoding.size();
  if (sizes.vocab < encoding.size()) {
    throw InvalidArgument(Report{
        .what = "model.vocab is less than the text needs",
        .got = std::to_string(sizes.vocab),
        .expected = fmt::format("at least {}, the {}", encoding.size(),
                                encoding.is_of_bytes() ? "different bytes of the text" : "tokens of data.tokenizer"),
        .fix = "leave it out"});
  }
  model_ = make_model<M>(options_.without_memory, options_.type, sizes);
  return *model_;
}

template <class M, class S>
data::DatasetPtr DecoderTask<M, S>::training() {
  if (!training_) training_ = data::text_windows(corpus(), {.context = options_.model.context});
  return training_;
}

template <class M, class S>
data::DatasetPtr DecoderTask<M, S>::validation() {
  if (!validation_) validation_ = data::text_windows(corpus(), {options_.model.context, data::Split::kTest});
  return validation_;
}

template <class M, class S>
std::string DecoderTask<M, S>::kind_of_samples() const {
  const std::string windows =
      fmt::format("windows of {} {}", options_.model.context, options_.tokenizer.empty() ? "characters" : "tokens");
  if (options_.path.empty()) return windows + " from Reigen's documents";
  const bool folder = corpus_ && corpus_->taken().files > 0;
  return fmt::format("{} from {}{}", windows, options_.path,
                     folder ? fmt::format(" ({})", corpus_->taken().text()) : "");
}

template <class M, class S>
double DecoderTask<M, S>::flops_of_sample() {
  return models::training_flops(module().options(), options_.model.context);
}

template <class M, class S>
parallel::Plan DecoderTask<M, S>::tensor_plan() {
  return models::tensor_plan(module().options());
}

template <class M, class S>
at::Tensor DecoderTask<M, S>::sum_of_losses(const at::Tensor& scores, const at::Tensor& target) {
  if (!is_divided()) {
    return at::cross_entropy_loss(scores, target, {}, at::Reduction::Sum, data::kIgnoredToken);
  }
  return parallel::vocab_parallel_cross_entropy(scores, target, models::vocab_part(module().options().vocab, divided_),
                                                divided_.region().group,
                                                {.ignore_index = data::kIgnoredToken, .sum = true});
}

template <class M, class S>
at::Tensor DecoderTask<M, S>::training_step(const data::Samples& batch) {
  const at::Tensor& target = batch.target;
  const at::Tensor scores = module().forward(own_tokens(batch.input)).flatten(0, 1);
  if (context_) {
    const at::Tensor terms = target.ne(data::kIgnoredToken).sum().clamp_min(1);
    return sum_of_losses(scores, own_tokens(target).flatten()) *
           (context_.ranks().size() / terms.to(scores.scalar_type()));
  }
  if (is_divided()) {
    return parallel::vocab_parallel_cross_entropy(scores, target.flatten(),
                                                  models::vocab_part(module().options().vocab, divided_),
                                                  divided_.region().group, {.ignore_index = data::kIgnoredToken});
  }
  if (nn::are_fused(options_.model.kernels, scores.device())) {
    return nn::cross_entropy(scores, target.flatten(), {.ignore_index = data::kIgnoredToken});
  }
  return at::cross_entropy_loss(scores, target.flatten(), {}, at::Reduction::Mean, data::kIgnoredToken);
}

template <class M, class S>
void DecoderTask<M, S>::validation_step(const data::Samples& batch) {
  const at::Tensor scores = module().forward(own_tokens(batch.input)).flatten(0, 1);
  const at::Tensor target = own_tokens(batch.target).flatten();
  const ClassFigures figures =
      is_divided() ? figures_of_parts(scores, target, models::vocab_part(module().options().vocab, divided_),
                                      divided_.region().group)
                   : figures_of_classes(scores, target);
  log("test_accuracy", figures.accuracy);
  log("test_loss", figures.loss);
  log("test_perplexity",
      Perplexity{.loss = {.sum = figures.loss.sum.item<double>(), .count = figures.loss.count.item<double>()}});
}

template <class M, class S>
std::string DecoderTask<M, S>::describe(const Figures& figures) const {
  return fmt::format("validation loss {:.4f}, perplexity {:.3f} ({} {})", figures.at("test_loss"),
                     figures.at("test_perplexity"), figures.terms,
                     options_.tokenizer.empty() ? "characters" : "tokens");
}

template <class M, class S>
std::vector<std::pair<std::string, std::string>> DecoderTask<M, S>::files() {
  const data::TokenizerPtr& tokenizer = corpus()->encoding().tokenizer();
  if (!tokenizer) return {};
  return {{tokenizer->is_tiktoken() ? "tokenizer.tiktoken" : "tokenizer.json", tokenizer->path().string()}};
}

template <class M, class S>
std::string DecoderTask<M, S>::closing_words() {
  if (is_divided() || context_) return {};  // only rank 0 is asked, and it cannot run the model alone
  std::string text = printable(sample("\n", options_.tokenizer.empty() ? kSampleBytes : kSampleTokens));
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5) text.replace(at, 1, "\n    ");
  return "it goes on like this:\n    " + text;
}

template <class M, class S>
std::string DecoderTask<M, S>::sample(const std::string& begin, std::int64_t count) {
  M& model = module();
  const data::Encoding& encoding = corpus()->encoding();
  std::vector<std::int64_t> tokens;
  if (encoding.is_of_bytes()) {
    for (const char c : begin) tokens.push_back(std::max<std::int64_t>(0, token_of(encoding.alphabet(), c)));
  } else {
    tokens = encoding.encode(begin);
  }
  if (tokens.empty()) tokens.push_back(0);
  const at::Device device = model.parameters().front().device();
  const std::size_t start = tokens.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t seen = std::min(tokens.size(), static_cast<std::size_t>(options_.model.context));
    const at::Tensor input =
        at::tensor(at::ArrayRef<std::int64_t>(tokens.data() + tokens.size() - seen, seen)).unsqueeze(0).to(device);
    const at::Tensor scores =
        model.forward(input).select(1, -1).flatten().narrow(0, 0, encoding.size());  // a model may have more tokens
    const at::Tensor sums = at::softmax(scores.to(at::kDouble), 0).cumsum(0);
    const double at = base::unit_interval(base::philox(options_.seed, static_cast<std::uint64_t>(i))[0]);
    const auto below = sums.le(at).sum().item<std::int64_t>();
    tokens.push_back(std::min(below, encoding.size() - 1));
  }
  std::string text;
  for (const std::int64_t token : std::span(tokens).subspan(start)) {
    if (encoding.has(token)) text += encoding.bytes(token);  // a tokenizer may have gaps in its numbering
  }
  return text;
}

template class DecoderTask<models::Gpt, models::GptOptions>;
template class DecoderTask<models::Llama, models::LlamaOptions>;

}  // namespace reigen::train
