#include "train/run/validated.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "reigen/base/error.h"

namespace reigen::train {

namespace {

// JSON has no NaN: metrics.jsonl has null in its place.
void take_values(const nlohmann::json& json, Validated& one) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) one.values[name] = value.get<double>();
    if (value.is_null()) one.values[name] = std::numeric_limits<double>::quiet_NaN();
  }
}

bool has_step(const nlohmann::json& json) {
  return json.is_object() && json.contains("step") && json["step"].is_number_integer();
}

}  // namespace

std::string to_text(const std::vector<Validated>& validations) {
  auto list = nlohmann::json::array();
  for (const Validated& one : validations) {
    auto values = nlohmann::json::object();
    for (const auto& [name, value] : one.values)
      values[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
    list.push_back({{"step", one.step}, {"at_end", one.is_last}, {"values", std::move(values)}});
  }
  return list.dump();
}

std::vector<Validated> validated_in(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  std::vector<Validated> all;
  bool is_right = list.is_array();
  for (const auto& json : list) {
    is_right = is_right && has_step(json) && json.value("at_end", nlohmann::json()).is_boolean() &&
               json.value("values", nlohmann::json()).is_object();
    if (!is_right) break;
    Validated one{.step = json["step"].get<std::int64_t>(), .is_last = json["at_end"].get<bool>()};
    take_values(json["values"], one);
    all.push_back(std::move(one));
  }
  if (is_right) return all;
  throw DataError(Report{.what = "the checkpoint's list of validations is damaged",
                         .got = text.substr(0, 100),
                         .expected = "a JSON list of objects with step, at_end and values"});
}

std::vector<Validated> validated_in_file(const std::filesystem::path& metrics, std::int64_t last_step) {
  std::vector<Validated> all;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!has_step(json) || !json.contains("test_samples") || json["step"].get<std::int64_t>() > last_step) continue;
    Validated one{.step = json["step"].get<std::int64_t>(), .is_last = json.contains("at_end")};
    take_values(json, one);
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<Validated> joined(std::vector<Validated> first, const std::vector<Validated>& second) {
  std::map<std::pair<std::int64_t, bool>, Validated> all;
  for (Validated& one : first) all.try_emplace({one.step, one.is_last}, std::move(one));
  for (const Validated& one : second) {
    const auto [same, is_new] = all.try_emplace({one.step, one.is_last}, one);
    if (!is_new) same->second.values.insert(one.values.begin(), one.values.end());
  }
  std::vector<Validated> in_order;
  for (auto& [place, one] : all) in_order.push_back(std::move(one));
  return in_order;
}

}  // namespace reigen::train
