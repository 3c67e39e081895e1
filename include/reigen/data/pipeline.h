// Data as a chain of steps, from a container to batches.
//
//   data::DatasetPtr training = data::open("imagenet/train.lmdb")       // decode and augment, one sample at a time
//                                   .map(image::random_resized_crop(224))
//                                   .map(image::random_flip());
//
//   data::Loader loader = data::open("train.lmdb").map(image::center_crop(224))   // the same without a trainer
//                             .shuffle({.seed = 1}).shard(world).batch(256).prefetch(4).loader();
//   for (auto& batch : loader.epoch(0)) loss = ...(batch.input, batch.target) * batch.weight;
//
// A Pipeline is a value; each function returns a longer one, and the old one stays as it was. It becomes a Dataset
// where one is wanted, so the trainer, a DataModule and a Loader take it.
//
// Randomness: a step that draws gets a Random of (the pass's seed, epoch, index of the sample, place of the step in the
// chain). So a sample has the same bytes for any number of workers, ranks and batches. The order of the samples is that
// of sampler.h.
// Speed: a picture is decoded at the end, and only the region that the steps ask for. The workers of a loader share the
// samples of one batch and write into its memory, which is used again for later batches.
// Thread rule: any thread may use a Pipeline. The functions that are given to it are called by several threads at once.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reigen/base/random.h"
#include "reigen/data/dataset.h"
#include "reigen/data/loader.h"
#include "reigen/data/sample.h"
#include "reigen/image/draft.h"

namespace reigen::data {

// An operation on a picture: those of image/operations.h, or your own.
template <typename F>
concept PictureOperation = requires(const F& f, image::Draft& draft, Random& random) {
  f(draft, random);
};
// A step: changes a sample, draws from `random` and from nothing else.
using Step = std::function<void(Sample& sample, Random& random)>;
// Makes a batch of samples whose tensors have different shapes. It gets each sample's tensors, without a first
// dimension for the batch, in order.
using Collate = std::function<Samples(std::span<const Samples> samples)>;

struct ShuffleOptions {
  std::uint64_t seed = 0;
  Shuffle how = Shuffle::kFull;
};

// Mixing of pairs of samples in training (Pipeline::mix_pairs). Each is a parameter of a distribution Beta(a, a), or 0
// for none. If both are above 0, each pair is mixed in one of the two ways, with equal probability.
struct Mixing {
  double mixup = 0;   // Zhang et al., 2018, https://arxiv.org/abs/1710.09412
  double cutmix = 0;  // Yun et al., 2019, https://arxiv.org/abs/1905.04899
};

class SampleSource;

class Pipeline {
 public:
  // Begins with any dataset. Its tensors are the values of the samples.
  Pipeline(DatasetPtr data);  // NOLINT(google-explicit-constructor): `data::Pipeline p = mnist(...)`

  // ---- steps on samples

  Pipeline map(Step step) const;
  // The operation works on this picture of the sample.
  template <PictureOperation F>
  Pipeline map(F operation, std::string name = "input") const {
    return map(Step([operation = std::move(operation), name = std::move(name)](Sample& sample, Random& random) {
      operation(sample.picture(name), random);
    }));
  }
  // How pictures become tensors at the end. Default: fp32 planes, normalised with ImageNet's mean and deviation.
  Pipeline output(const image::Output& output) const;
  // Without it, all samples must have equal shapes and types.
  Pipeline collate(Collate function) const;

  // Mixes the samples at positions 2k and 2k + 1 of each global batch of a Loader, with a weight w that is a function
  // of (the pass's seed, epoch, position of the pair); so the number of ranks does not matter. mixup: input = w · own
  // input
  // + (1 - w) · partner's input. cutmix: a box of the partner's picture, which takes 1 - w of the area, replaces that
  // of the own picture. Batches get two more tensors, "mixed_target" (the partner's target) and "mixed_weight" (w,
  // fp32): the loss is w · loss(target) + (1 - w) · loss(mixed_target), for each sample (train/mixed_loss.h). A sample
  // without a partner, or with a damaged one that is left out, has w = 1. `input` must be fp32: a picture in the layout
  // of the output, or a tensor [channels, height, width]; a batch of tensors is [samples, channels, height, width].
  // With collate() it is refused. Cost: a pass over the batch's memory, and where a rank's part of the batch begins or
  // ends between partners, one sample more.
  Pipeline mix_pairs(const Mixing& mixing) const;

  // ---- choosing samples

  Pipeline subset(std::int64_t begin, std::int64_t end) const;  // samples begin..end-1
  Pipeline subset(std::vector<std::int64_t> indices) const;     // these samples, in this order
  // Divides the samples at random by `seed`: part k has the fraction fractions[k] of them, rounded to whole samples so
  // that the parts together are all samples. The fractions are positive, and their sum is 1 (to 1e-9).
  std::vector<Pipeline> split(const std::vector<double>& fractions, std::uint64_t seed = 0) const;

  // ---- batches without a trainer

  Pipeline shuffle(const ShuffleOptions& options) const;
  Pipeline shard(const Member& member) const;         // for this rank of a group
  Pipeline batch(std::int64_t samples) const;         // of each rank
  Pipeline global_batch(std::int64_t samples) const;  // of all ranks together
  // Sets LoaderOptions::prefetch, workers and most_workers.
  Pipeline prefetch(int batches, int workers = 1, int most_workers = 0) const;
  // Throws InvalidArgument without batch() or global_batch(), and what Loader throws.
  Loader loader() const;

  // The samples, for a trainer or a Loader. Throws InvalidArgument if the pipeline has steps of the section above,
  // which these decide.
  DatasetPtr dataset() const;
  operator DatasetPtr() const { return dataset(); }  // NOLINT(google-explicit-constructor)

  std::int64_t size() const;
  const std::string& name() const;
  // One sample, after all steps, as in this pass. Pictures are not decoded yet.
  Sample sample(std::int64_t index, const Pass& pass = {}) const;

 private:
  friend struct PipelineAccess;
  explicit Pipeline(std::shared_ptr<const SampleSource> source);
  Pipeline with(std::shared_ptr<const SampleSource> source) const;

  std::shared_ptr<const SampleSource> source_;
  DatasetPtr plain_ = nullptr;  // the dataset with which the pipeline began, while there are no steps on samples
  image::Output output_ = {.mean = image::kImageNetMean, .deviation = image::kImageNetDeviation};
  Collate collate_ = nullptr;
  std::optional<Mixing> mixing_ = {};
  std::uint32_t maps_ = 0;  // the place of the next map()
  LoaderOptions batches_ = {};
  Member member_ = {};
  bool has_batches_ = false;  // a step that a Loader decides was given
};

// The samples of all parts, one part after the other. Output and collate() are those of the first part. In a part's own
// steps a sample keeps its index in that part, so a sample that mix() repeats in an epoch draws the same numbers; steps
// after the join draw by the index in the whole.
Pipeline concat(const std::vector<Pipeline>& parts);

// A part of a mix, and how often it comes.
struct MixPart {
  Pipeline pipeline;
  double weight = 1;  // positive
};
// `size` samples. Part k gives weight_k / (sum of the weights) of any first n of them, to one sample. A part gives its
// samples in order, and begins again at its end. Output and collate() are those of the first part.
Pipeline mix(const std::vector<MixPart>& parts, std::int64_t size);

struct OpenOptions {
  // Name of the value -> name in the container: {{"input", "/x/img"}, {"target", "/x/label"}}. Empty: the usual names,
  // and every other picture, label and tensor. Bytes, as texts and JSON, have to be named, because their lengths
  // differ.
  std::map<std::string, std::string> fields = {};
  std::int64_t label_offset = 0;           // is subtracted from every label
  std::filesystem::path labels_file = {};  // of a flat folder of pictures: lines `name label`
  std::optional<Split> split = {};         // of a folder with train/ and test/
  // JPEGs that shrink are decoded at 1/2, 1/4 or 1/8 of their size. This is faster for large photos, and the pixels
  // differ a little.
  bool fast_decode = false;
};

// The samples of a container (docs/containers.md): pictures, labels as int64 scalars, and tensors. Throws what
// container::open() throws; InvalidArgument for a compressed tar, which cannot be read in any order.
Pipeline open(const std::filesystem::path& path, const OpenOptions& options = {});

}  // namespace reigen::data
