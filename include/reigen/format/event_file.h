// Event files, which TensorBoard shows: curves, histograms, images, texts, a graph and the parameters of a run.
//
// A file is a sequence of records. Each function *_event() returns the bytes of one record, so
//   file = first_event(t) + scalars_event(...) + text_event(...) + ...
// in a file whose name begins with "events.out.tfevents." (event_file_name()). Steps may come in any order; TensorBoard
// takes a step that is smaller than an earlier one of the same tag for a restart.
//
// A record is the length of its data (8 bytes), a checksum of the length, the data and a checksum of the data, all
// little-endian. The checksum is CRC32C, rotated and added to a constant. The data are a message `Event` in the wire
// format of protocol buffers. Source: TensorBoard's compat/proto/event.proto, summary.proto and graph.proto, and
// plugins/hparams/plugin_data.proto.
// Thread rule: pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace reigen::format {

// "events.out.tfevents.1764412345.host.4711.2.reigen": seconds since 1970, the machine, the process, the number of such
// names in this process before, and the ending.
std::string event_file_name(double wall_time, std::string_view ending);
// Whether a file has such a name, with this ending.
bool is_event_file_name(std::string_view name, std::string_view ending);

// When an event was: seconds since 1970, and the number of the step.
struct EventTime {
  double wall_time = 0;
  std::int64_t step = 0;
};

// The first record of a file.
std::string first_event(double wall_time);

std::string scalars_event(const EventTime& when, const std::vector<std::pair<std::string, double>>& values);

// The numbers of elements between limits: counts[i] elements are in (limits[i-1], limits[i]].
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits = {};  // rising; the last one is at least max
  std::vector<double> counts = {};
};
std::string histogram_event(const EventTime& when, const std::string& tag, const Histogram& histogram);

// `png`: the bytes of a PNG file. channels: 1 grey, 3 RGB, 4 RGBA.
std::string image_event(const EventTime& when, const std::string& tag, int width, int height, int channels,
                        std::string_view png);

// TensorBoard reads the text as Markdown.
std::string text_event(const EventTime& when, const std::string& tag, std::string_view text);

// A node of the graph of a model. '/' in its name is the border between a scope and what is in it.
struct GraphNode {
  std::string name = {};
  std::string op = {};                   // what it does: "Linear"
  std::vector<std::string> inputs = {};  // names of nodes
  std::map<std::string, std::variant<std::string, std::int64_t>> attributes = {};
  std::optional<std::vector<std::int64_t>> shape = {};  // of its output, which TensorBoard writes on the edges
};
// A file has at most one graph.
std::string graph_event(const EventTime& when, const std::vector<GraphNode>& nodes);

// The parameters of a run, for TensorBoard's table of runs. `metrics`: tags of scalars that the table shows.
using HParam = std::variant<bool, double, std::string>;
std::string hparams_experiment_event(const EventTime& when, const std::map<std::string, HParam>& values,
                                     const std::vector<std::string>& metrics);
std::string hparams_begin_event(const EventTime& when, const std::map<std::string, HParam>& values);
std::string hparams_end_event(const EventTime& when, bool succeeded);

// What a record says. Images, texts and parameters are given by their tag alone.
struct Event {
  EventTime when = {};
  std::string version = {};  // of the first record
  std::vector<std::string> tags = {};
  std::vector<std::pair<std::string, double>> scalars = {};
  bool ends_session = false;  // a record of hparams_end_event()
};
// Reads records from the begin of `content` until visit() returns false, or until a record is incomplete, has a wrong
// checksum or is no Event. Returns the length of the records that visit() has accepted.
std::size_t read_events(std::string_view content, const std::function<bool(const Event& event)>& visit);

}  // namespace reigen::format
