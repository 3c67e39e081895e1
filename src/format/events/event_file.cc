#include "reigen/format/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "format/crc32c/crc32c.h"
#include "format/protobuf/protobuf.h"

namespace reigen::format {
namespace {

using protobuf::Field;
using protobuf::Fields;
using protobuf::Message;

constexpr std::size_t kHead = 12;  // length and checksum before the data
constexpr std::size_t kTail = 4;   // checksum after the data

// Numbers of fields.
namespace event {
enum : std::uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kGraph = 4, kSummary = 5 };
}
namespace value {
enum : std::uint32_t { kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9 };
}

constexpr const char* kEndOfSession = "_hparams_/session_end_info";

template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class Number>
Number get(std::string_view bytes) {
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

std::string record(const Message& message) {
  const std::string& data = message.to_bytes();
  std::string bytes;
  bytes.reserve(kHead + data.size() + kTail);
  put(bytes, static_cast<std::uint64_t>(data.size()));
  put(bytes, masked_crc32c(std::string_view(bytes).substr(0, 8)));
  bytes += data;
  put(bytes, masked_crc32c(data));
  return bytes;
}

Message at(const EventTime& when) {
  Message message;
  message.number(event::kWallTime, when.wall_time);
  message.integer(event::kStep, when.step);
  return message;
}

std::string summary_record(const EventTime& when, const Message& summary) {
  Message message = at(when);
  message.message(event::kSummary, summary);
  return record(message);
}

Message with_tag(const std::string& tag) {
  Message message;
  message.bytes(value::kTag, tag);
  return message;
}

std::string record_of(const EventTime& when, const Message& one_value) {
  Message summary;
  summary.message(1, one_value);
  return summary_record(when, summary);
}

// SummaryMetadata: which plugin of TensorBoard shows the value, and a message for it.
Message metadata(const char* plugin, std::string_view content) {
  Message of_plugin, all;
  of_plugin.bytes(1, plugin);
  of_plugin.bytes(2, content);
  all.message(1, of_plugin);
  return all;
}

std::string hparams_record(const EventTime& when, const char* tag, std::uint32_t field, const Message& content) {
  Message data;
  data.integer(1, 0);  // version
  data.message(field, content);
  Message value = with_tag(tag);
  value.message(value::kMetadata, metadata("hparams", data.to_bytes()));
  return record_of(when, value);
}

// google.protobuf.Value
Message of_value(const HParam& value) {
  Message message;
  if (const bool* const truth = std::get_if<bool>(&value)) message.integer(4, *truth ? 1 : 0);
  if (const double* const number = std::get_if<double>(&value)) message.number(2, *number);
  if (const std::string* const text = std::get_if<std::string>(&value)) message.bytes(3, *text);
  return message;
}

// Returns false if the message is no Event.
bool read_event(std::string_view data, Event& found) {
  Fields fields(data);
  while (const auto field = fields.next()) {
    if (field->number == event::kWallTime && field->kind == protobuf::Kind::kEight)
      found.when.wall_time = field->as_double();
    if (field->number == event::kStep && field->kind == protobuf::Kind::kVarint)
      found.when.step = static_cast<std::int64_t>(field->integer);
    if (field->number == event::kFileVersion) found.version = field->bytes;
    if (field->number != event::kSummary) continue;
    Fields values(field->bytes);
    while (const auto one = values.next()) {
      Fields of_value(one->bytes);
      std::string tag;
      std::optional<double> scalar;
      while (const auto part = of_value.next()) {
        if (part->number == value::kTag) tag = part->bytes;
        if (part->number == value::kSimpleValue) scalar = part->as_float();
      }
      if (of_value.is_wrong()) return false;
      if (scalar) found.scalars.emplace_back(tag, *scalar);
      found.ends_session = found.ends_session || tag == kEndOfSession;
      found.tags.push_back(std::move(tag));
    }
    if (values.is_wrong()) return false;
  }
  return !fields.is_wrong();
}

}  // namespace

std::string event_file_name(double wall_time, std::string_view ending) {
  static std::atomic<int> number = 0;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '-';
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}.{}", static_cast<std::int64_t>(wall_time), host.data(),
                     ::getpid(), number++, ending);
}

bool is_event_file_name(std::string_view name, std::string_view ending) {
  return name.starts_with("events.out.tfevents.") && name.ends_with(fmt::format(".{}", ending));
}

std::string first_event(double wall_time) {
  Message message;
  message.number(event::kWallTime, wall_time);
  message.bytes(event::kFileVersion, "brain.Event:2");
  return record(message);
}

std::string scalars_event(const EventTime& when, const std::vector<std::pair<std::string, double>>& values) {
  Message summary;
  for (const auto& [tag, number] : values) {
    Message value = with_tag(tag);
    value.number(value::kSimpleValue, static_cast<float>(number));
    summary.message(1, value);
  }
  return summary_record(when, summary);
}

std::string histogram_event(const EventTime& when, const std::string& tag, const Histogram& histogram) {
  Message proto;
  proto.number(1, histogram.min);
  proto.number(2, histogram.max);
  proto.number(3, histogram.count);
  proto.number(4, histogram.sum);
  proto.number(5, histogram.sum_of_squares);
  proto.numbers(6, histogram.limits);
  proto.numbers(7, histogram.counts);
  Message value = with_tag(tag);
  value.message(value::kHistogram, proto);
  return record_of(when, value);
}

std::string image_event(const EventTime& when, const std::string& tag, int width, int height, int channels,
                        std::string_view png) {
  Message proto;
  proto.integer(1, height);
  proto.integer(2, width);
  proto.integer(3, channels);
  proto.bytes(4, png);
  Message value = with_tag(tag);
  value.message(value::kImage, proto);
  return record_of(when, value);
}

std::string text_event(const EventTime& when, const std::string& tag, std::string_view text) {
  constexpr std::int64_t kString = 7;  // DT_STRING
  Message dimension, shape, tensor;
  dimension.integer(1, 1);
  shape.message(2, dimension);
  tensor.integer(1, kString);
  tensor.message(2, shape);
  tensor.bytes(8, text);
  Message value = with_tag(tag);
  value.message(value::kTensor, tensor);
  value.message(value::kMetadata, metadata("text", ""));
  return record_of(when, value);
}

std::string graph_event(const EventTime& when, const std::vector<GraphNode>& nodes) {
  constexpr std::int64_t kProducer = 22;  // a version of the format without outdated operations
  const auto attribute = [](Message& node, const std::string& name, const Message& value) {
    Message entry;
    entry.bytes(1, name);
    entry.message(2, value);
    node.message(5, entry);
  };
  Message graph, versions;
  for (const GraphNode& one : nodes) {
    Message node;
    node.bytes(1, one.name);
    node.bytes(2, one.op);
    for (const std::string& input : one.inputs) node.bytes(3, input);
    for (const auto& [name, value] : one.attributes) {
      Message content;
      if (const auto* const text = std::get_if<std::string>(&value)) content.bytes(2, *text);
      if (const auto* const number = std::get_if<std::int64_t>(&value)) content.integer(3, *number);
      attribute(node, name, content);
    }
    if (one.shape) {
      Message shape, shapes, content;
      for (const std::int64_t size : *one.shape) {
        Message dimension;
        dimension.integer(1, size);
        shape.message(2, dimension);
      }
      shapes.message(7, shape);
      content.message(1, shapes);
      attribute(node, "_output_shapes", content);
    }
    graph.message(1, node);
  }
  versions.integer(1, kProducer);
  graph.message(4, versions);
  Message message = at(when);
  message.message(event::kGraph, graph);
  return record(message);
}

std::string hparams_experiment_event(const EventTime& when, const std::map<std::string, HParam>& values,
                                     const std::vector<std::string>& metrics) {
  Message experiment;
  for (const auto& [name, value] : values) {
    constexpr std::array<std::int64_t, 3> kTypes = {2, 3, 1};  // of bool, double and text
    Message one;
    one.bytes(1, name);
    one.integer(4, kTypes[value.index()]);
    experiment.message(4, one);
  }
  for (const std::string& tag : metrics) {
    Message name, one;
    name.bytes(2, tag);
    one.message(1, name);
    experiment.message(5, one);
  }
  return hparams_record(when, "_hparams_/experiment", 2, experiment);
}

std::string hparams_begin_event(const EventTime& when, const std::map<std::string, HParam>& values) {
  Message begin;
  for (const auto& [name, value] : values) {
    Message entry;
    entry.bytes(1, name);
    entry.message(2, of_value(value));
    begin.message(1, entry);
  }
  begin.number(5, when.wall_time);
  return hparams_record(when, "_hparams_/session_start_info", 3, begin);
}

std::string hparams_end_event(const EventTime& when, bool succeeded) {
  Message end;
  end.integer(1, succeeded ? 1 : 2);
  end.number(2, when.wall_time);
  return hparams_record(when, kEndOfSession, 4, end);
}

std::size_t read_events(std::string_view content, const std::function<bool(const Event& event)>& visit) {
  std::size_t length = 0;
  for (;;) {
    const std::string_view rest = content.substr(length);
    if (rest.size() < kHead + kTail) return length;
    const auto size = get<std::uint64_t>(rest);
    if (masked_crc32c(rest.substr(0, 8)) != get<std::uint32_t>(rest.substr(8)) || size > rest.size() - kHead - kTail)
      return length;
    const std::string_view data = rest.substr(kHead, size);
    Event event;
    if (masked_crc32c(data) != get<std::uint32_t>(rest.substr(kHead + size)) || !read_event(data, event) ||
        !visit(event))
      return length;
    length += kHead + size + kTail;
  }
}

}  // namespace reigen::format
