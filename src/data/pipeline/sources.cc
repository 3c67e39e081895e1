#include <fmt/format.h>

#include <exception>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error_record.h"
#include "data/pipeline/source.h"
#include "reigen/base/error.h"

namespace reigen::data {

namespace {

class OfDataset : public SampleSource {
 public:
  explicit OfDataset(DatasetPtr data) : data_(std::move(data)) {}

  std::int64_t size() const override { return data_->size(); }
  const std::string& name() const override { return data_->name(); }
  Meaning meaning() const override { return data_->meaning(); }
  std::int64_t terms(std::int64_t index) const override { return data_->terms(index); }

  Sample sample(const Pass& pass, std::int64_t index) const override {
    Sample sample(index, fmt::format("{}, sample {}", data_->name(), index));
    data_->gather_in(pass, std::span(&index, 1)).for_each([&](std::string_view name, const at::Tensor& rows) {
      sample.set(name, rows[0]);
    });
    return sample;
  }

 private:
  DatasetPtr data_;
};

class Mapped : public SampleSource {
 public:
  Mapped(SourcePtr from, Step step, std::uint32_t place)
      : from_(std::move(from)), step_(std::move(step)), place_(place) {}

  std::int64_t size() const override { return from_->size(); }
  const std::string& name() const override { return from_->name(); }
  Meaning meaning() const override { return from_->meaning(); }
  std::int64_t terms(std::int64_t index) const override { return from_->terms(index); }

  Sample sample(const Pass& pass, std::int64_t index) const override {
    Sample sample = from_->sample(pass, index);
    Random random({.seed = pass.seed, .epoch = pass.epoch, .sample = index, .place = place_});
    try {
      step_(sample, random);
    } catch (...) {
      throw_from_step(fmt::format("map() number {} of the pipeline", place_ + 1), sample.where());
    }
    return sample;
  }

 private:
  SourcePtr from_;
  Step step_;
  std::uint32_t place_;
};

// Samples of other sources: a subset, a chain or a mix.
class Picked : public SampleSource {
 public:
  using Picks = std::vector<std::pair<std::size_t, std::int64_t>>;
  Picked(std::vector<SourcePtr> parts, Picks picks, std::string name)
      : parts_(std::move(parts)), picks_(std::move(picks)), name_(std::move(name)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(picks_.size()); }
  const std::string& name() const override { return name_; }
  // Which samples were picked is a decision of the program, and no fact of the data.
  Meaning meaning() const override {
    Meaning all;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      for (Fact fact : parts_[part]->meaning()) {
        if (parts_.size() > 1) fact.name += fmt::format("_{}", part);
        all.push_back(std::move(fact));
      }
    }
    return all;
  }
  std::int64_t terms(std::int64_t index) const override {
    const auto& [part, its_index] = picks_[static_cast<std::size_t>(index)];
    return parts_[part]->terms(its_index);
  }
  Sample sample(const Pass& pass, std::int64_t index) const override {
    const auto& [part, its_index] = picks_[static_cast<std::size_t>(index)];
    return parts_[part]->sample(pass, its_index);
  }

 private:
  std::vector<SourcePtr> parts_;
  Picks picks_;
  std::string name_;
};

}  // namespace

void throw_from_step(const std::string& step, const std::string& where) {
  bool is_common = false;
  bool is_known = true;
  try {
    throw;
  } catch (const Error& error) {
    is_common = error.is_common();
  } catch (const std::bad_alloc&) {
  } catch (const std::system_error&) {
  } catch (...) {
    is_known = false;
  }
  base::ErrorRecord record = base::record_of(std::current_exception());
  if (!is_known)
    throw Error(ExitCode::kBug, Report{.what = fmt::format("{} threw for {}", step, where), .got = record.text});
  const bool names_place = record.text.find(where) != std::string::npos;
  record.text = fmt::format("{}{}: {}", step, names_place ? "" : " threw for " + where, record.text);
  base::raise(record, is_common);
}

SourcePtr source_of(DatasetPtr data) {
  REIGEN_CHECK(data != nullptr, "a pipeline needs a dataset");
  return std::make_shared<OfDataset>(std::move(data));
}

SourcePtr mapped(SourcePtr from, Step step, std::uint32_t place) {
  REIGEN_CHECK(step != nullptr, "map() needs a function");
  return std::make_shared<Mapped>(std::move(from), std::move(step), place);
}

SourcePtr chosen(SourcePtr from, std::vector<std::int64_t> indices, const char* how) {
  Picked::Picks picks;
  picks.reserve(indices.size());
  for (const std::int64_t index : indices) {
    REIGEN_CHECK(index >= 0 && index < from->size(), "sample {} is not in '{}', which has {}", index, from->name(),
                 from->size());
    picks.emplace_back(0, index);
  }
  std::string name = fmt::format("{} of {}", how, from->name());
  return std::make_shared<Picked>(std::vector{std::move(from)}, std::move(picks), std::move(name));
}

SourcePtr joined(std::vector<SourcePtr> parts, Picked::Picks picks, const char* how) {
  std::string name;
  for (const SourcePtr& part : parts) name += (name.empty() ? "" : how) + part->name();
  return std::make_shared<Picked>(std::move(parts), std::move(picks), std::move(name));
}

}  // namespace reigen::data
