#include "bench/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "comm/backends.h"
#include "comm/call/algorithm_choice.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "usage.h"

namespace reigen::apps::bench {

namespace {

using comm::DataType;
using comm::ReduceOp;

struct TypeName {
  const char* name;
  DataType type;
};

// The name that nccl-tests gives a type comes first.
constexpr std::array kTypes = {
    TypeName{"int8", DataType::kInt8},       TypeName{"uint8", DataType::kUint8},
    TypeName{"int16", DataType::kInt16},     TypeName{"int32", DataType::kInt32},
    TypeName{"int64", DataType::kInt64},     TypeName{"half", DataType::kFloat16},
    TypeName{"float16", DataType::kFloat16}, TypeName{"bfloat16", DataType::kBfloat16},
    TypeName{"float", DataType::kFloat32},   TypeName{"float32", DataType::kFloat32},
    TypeName{"double", DataType::kFloat64},  TypeName{"float64", DataType::kFloat64},
    TypeName{"bool", DataType::kBool},
};

constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProd, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kBor,  ReduceOp::kBxor};

const std::vector<std::string> kFlags = {
    "-n",     "-b",          "-e",         "-f",      "-d",        "-o",         "-r",          "--iters",   "--warmup",
    "--json", "--backend",   "--machines", "--check", "--cold",    "--in-place", "--help",      "--foreign", "--shared",
    "--late", "--algorithm", "--segments", "-h",      "--explain", "--as",       "--in-flight", "--device"};

struct Words {
  std::string operation;
  std::optional<std::string> as;
  std::string ranks;
  std::string smallest = "4";
  std::string largest = "64M";
  std::string type = "float";
  std::string op = "sum";
  std::string device = "cpu";
  long long factor = 4;
};

[[noreturn]] void refuse(const Report& report) { throw InvalidArgument(report, ExitCode::kUsage); }

[[noreturn]] void refuse_word(const std::string& what, const std::string& got, const std::vector<std::string>& known) {
  const std::string meant = nearest(got, known);
  refuse({.what = what,
          .got = got,
          .expected = fmt::format("{}", fmt::join(known, ", ")),
          .fix = meant.empty() ? std::string("take one of them") : "did you mean " + meant + "?"});
}

struct Formatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format(
        "Usage: reigen bench OP [options]\n       reigen bench ddp [options]   a data-parallel training step, see its "
        "--help\nOP: {}\n",
        fmt::join(operation_names(), ", "));
  }
  std::string make_positionals(const CLI::App*) const override { return {}; }
};

void add_options(CLI::App& app, Words& words, BenchOptions& options) {
  app.add_option("OP", words.operation)->required();
  app.add_option("-n", words.ranks, "processes to start (default 2); cpu: one a core")->type_name("N");
  app.add_option("-b", words.smallest, "smallest size in bytes: 4, 16K, 64M (default 4)")->type_name("SIZE");
  app.add_option("-e", words.largest, "largest size (default 64M)")->type_name("SIZE");
  app.add_option("-f", words.factor, "from one size to the next (default 4)")->type_name("F");
  app.add_option("-d", words.type, "type, by nccl-tests' name or ours (default float)")->type_name("TYPE");
  app.add_option("-o", words.op, "reduction (default sum)")->type_name("OP");
  app.add_option("-r", options.root, "root (default 0)")->type_name("RANK");
  app.add_option("--iters", options.iterations, "timed iterations (default: half a second, 5 to 20000)")
      ->type_name("K");
  app.add_option("--warmup", options.warmup, "iterations before (default 5)")->type_name("K");
  app.add_option("--in-flight", options.in_flight, "calls under way at once; times are of one of them (default 1)")
      ->type_name("N");
  app.add_option("--as", words.as,
                 "time two operations that do its work: all_reduce as reduce+broadcast or reduce_scatter+all_gather, "
                 "all_gather as gather+broadcast")
      ->type_name("TWO");
  app.add_option("--json", options.json, "write the rows to FILE too")->type_name("FILE");
  app.add_option("--backend", options.backend,
                 "auto, self, shared_memory, tcp, mpi, nccl, cuda_ipc, hierarchical (default auto)")
      ->type_name("B");
  app.add_option("--device", words.device,
                 "whose memory: cpu, cuda (each rank its own, or by turns), cuda:N (default cpu)")
      ->type_name("D");
  app.add_option("--algorithm", options.algorithm, "ring, tree, two_shot, ... or tuned (default: by size)")
      ->type_name("A");
  app.add_flag("--explain", options.explain, "say which algorithm each size would take and why, and time nothing");
  app.add_option("--segments", options.segments,
                 "backend tcp: pieces that travel one after the other (default: by size)")
      ->type_name("S");
  app.add_option("--machines", options.machines, "this machine plays M: neighbours together (default: as it is)")
      ->type_name("M");
  app.add_flag("--foreign", options.foreign, "memory of the process, not of the communicator");
  app.add_flag("--check", options.check, "compare every element once, before timing");
  app.add_flag("--in-place", options.in_place, "input and output are the same memory");
  app.add_flag("--shared", options.shared, "all_gather in place in memory that all ranks share");
  app.add_option("--late", options.late_ms, "the last rank comes MS milliseconds late: what do the others use?")
      ->type_name("MS");
  app.add_flag("--cold", options.cold, "use buffers in turn that are 64 MiB together");
}

std::size_t parse_size(const std::string& flag, const std::string& text) {
  std::size_t size = 0;
  try {
    size = parse_bytes(text);
  } catch (const InvalidArgument&) {
    refuse({.what = flag + " is not a size in bytes",
            .got = flag + " " + text,
            .expected = "4, 16K, 64M or 1G",
            .fix = "powers of two: 1K is 1024"});
  }
  if (size == 0) refuse({.what = flag + " is out of range", .got = flag + " " + text, .expected = "at least 1"});
  return size;
}

DataType parse_type(const std::string& text) {
  std::vector<std::string> names;
  for (const TypeName& known : kTypes) {
    if (text == known.name) return known.type;
    names.emplace_back(known.name);
  }
  refuse_word("unknown type", text, names);
}

ReduceOp parse_op(const std::string& text) {
  std::vector<std::string> names;
  for (const ReduceOp op : kOps) {
    if (text == comm::name_of(op)) return op;
    names.emplace_back(comm::name_of(op));
  }
  refuse_word("unknown reduction", text, names);
}

void read_mock_up(const std::string& name, BenchOptions& options) {
  const std::vector<std::string> known = mock_up_names(options.operation);
  if (known.empty()) {
    refuse({.what = fmt::format("no two operations do the work of {}", traits_of(options.operation).name),
            .got = "--as " + name,
            .expected = "all_reduce or all_gather",
            .fix = "leave it out"});
  }
  options.as = find_mock_up(options.operation, name);
  if (options.as == nullptr) {
    refuse_word(fmt::format("not two operations that do the work of {}", traits_of(options.operation).name), name,
                known);
  }
  const char* const other = options.explain              ? "--explain"
                            : options.shared             ? "--shared"
                            : !options.algorithm.empty() ? "--algorithm"
                                                         : nullptr;
  if (other == nullptr) return;
  refuse({.what = fmt::format("{} is about {} itself, which --as replaces", other, traits_of(options.operation).name),
          .got = fmt::format("--as {} {}", name, other),
          .expected = "one of them",
          .fix = fmt::format("leave {} out", other)});
}

void read_words(const Words& words, BenchOptions& options) {
  const OperationTraits* traits = find_operation(words.operation);
  if (traits == nullptr) refuse_word("unknown operation", words.operation, operation_names());
  options.operation = traits->operation;
  if (words.as) read_mock_up(*words.as, options);
  if (!words.ranks.empty()) options.ranks = parse_ranks(words.ranks, ExitCode::kUsage);
  options.smallest = parse_size("-b", words.smallest);
  options.largest = parse_size("-e", words.largest);
  if (options.smallest > options.largest) {
    refuse({.what = "-b is larger than -e",
            .got = fmt::format("-b {} -e {}", words.smallest, words.largest),
            .expected = "the smallest size, then the largest",
            .fix = fmt::format("-b {} -e {}", words.largest, words.smallest)});
  }
  if (words.factor < 2) {
    refuse({.what = "-f is out of range",
            .got = fmt::format("-f {}", words.factor),
            .expected = "at least 2",
            .fix = "-f 2 doubles the size each time"});
  }
  options.factor = static_cast<std::size_t>(words.factor);
  options.type = parse_type(words.type);
  options.op = parse_op(words.op);
  try {
    options.device = parse_device(words.device);
  } catch (const InvalidArgument&) {
    refuse({.what = "--device is none",
            .got = "--device " + words.device,
            .expected = "cpu, cuda or cuda:N",
            .fix = "--device cuda gives each rank a GPU"});
  }
  if (traits->reduces && !comm::is_defined(options.op, options.type)) {
    refuse({.what = "the reduction is not defined for the type",
            .got = fmt::format("-o {} -d {}", words.op, words.type),
            .expected = options.op == ReduceOp::kAvg ? "a number" : "an integer or bool",
            .fix = options.op == ReduceOp::kAvg ? "-o bor" : "-d int32"});
  }
}

void check_backend(const BenchOptions& options, bool machines_given) {
  const std::vector<std::string> names = comm::backend_names();
  const std::string& backend = options.backend;
  if (std::find(names.begin(), names.end(), backend) == names.end()) refuse_word("unknown backend", backend, names);
  if (machines_given && options.machines < 1) {
    refuse({.what = "--machines is out of range",
            .got = fmt::format("--machines {}", options.machines),
            .expected = "at least 1",
            .fix = "leave it out: ranks are where they are"});
  }
  const comm::BackendEntry& entry = comm::find_backend(backend);
  const bool on_device = entry.memory != DeviceKind::kCpu || !options.device.is_cpu();
  if (on_device && (options.foreign || options.shared)) {
    refuse({.what = "memory of a device is the communicator's",
            .got = options.foreign ? "--foreign" : "--shared",
            .expected = "neither --foreign nor --shared with --device cuda, or a backend of devices",
            .fix = "leave it out"});
  }
  if (machines_given && entry.families.size() < 2) {
    refuse({.what = "only a hierarchical group knows machines",
            .got = fmt::format("--machines {} --backend {}", options.machines, backend),
            .expected = "--backend auto or hierarchical",
            .fix = "leave --machines out"});
  }
  if (options.segments > 0 && !comm::offers(entry, comm::Family::kTcp)) {
    refuse({.what = "only a network's algorithms cut what they send",
            .got = fmt::format("--segments {} --backend {}", options.segments, backend),
            .expected = "--backend tcp, hierarchical or auto",
            .fix = "leave --segments out"});
  }
}

// Checks the name of the algorithm. The option names no operation, because the operation is always the timed one.
void check_algorithm(const BenchOptions& options) {
  const std::string word = named_algorithm(options);
  if (word.empty()) return;
  std::vector<std::string> known;
  std::vector<std::string> by_backend;
  for (const comm::Family family : comm::find_backend(options.backend).families) {
    const auto names = comm::algorithm_names(family, comm::even_kind(options.operation));
    if (names.empty()) continue;
    known.insert(known.end(), names.begin(), names.end());
    by_backend.push_back(fmt::format("{} ({})", fmt::join(names, ", "), comm::name_of(family)));
  }
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  const std::string meant = nearest(word.substr(word.find(':') + 1), known);
  refuse({.what = fmt::format("{} has no such algorithm", traits_of(options.operation).name),
          .got = "--algorithm " + options.algorithm,
          .expected = by_backend.empty() ? "none to choose from" : fmt::format("{}", fmt::join(by_backend, "; ")),
          .fix = meant.empty() ? "leave it out, or write one of them, with a size if need be: ring@>1M"
                               : "--algorithm " + meant});
}

void check_counts(const BenchOptions& options, bool iterations_given) {
  if (iterations_given && options.iterations < 1) {
    refuse({.what = "--iters is out of range",
            .got = fmt::format("--iters {}", options.iterations),
            .expected = "at least 1",
            .fix = "without it, a size takes half a second"});
  }
  if (options.warmup < 0) {
    refuse({.what = "--warmup is out of range",
            .got = fmt::format("--warmup {}", options.warmup),
            .expected = "0 or more"});
  }
  if (options.in_flight < 1 || options.in_flight > 64) {
    refuse({.what = "--in-flight is out of range",
            .got = fmt::format("--in-flight {}", options.in_flight),
            .expected = "1 to 64 calls"});
  }
  if (options.in_flight > 1 && (options.as != nullptr || options.shared)) {
    refuse({.what = "--in-flight is for calls that need not wait for each other",
            .got = fmt::format("--in-flight {} {}", options.in_flight, options.shared ? "--shared" : "--as"),
            .expected = "one of the two",
            .fix = "leave --in-flight out"});
  }
  if (options.segments < 0) {
    refuse({.what = "--segments is out of range",
            .got = fmt::format("--segments {}", options.segments),
            .expected = "at least 1, or 0: by size"});
  }
  if (options.late_ms < 0 || options.late_ms > 60000) {
    refuse({.what = "--late is out of range",
            .got = fmt::format("--late {}", options.late_ms),
            .expected = "0 to 60000 milliseconds",
            .fix = "--late 1000"});
  }
  if (options.shared && (options.operation != Operation::kAllGather || options.foreign || options.cold)) {
    refuse({.what = "--shared is for all_gather in warm memory of the communicator",
            .got = fmt::format("{}{}{}", traits_of(options.operation).name, options.foreign ? " --foreign" : "",
                               options.cold ? " --cold" : ""),
            .expected = "reigen bench all_gather --shared",
            .fix = "leave it out"});
  }
  if (options.in_place && !traits_of(options.operation).in_place) {
    refuse({.what = fmt::format("{} is never in place", traits_of(options.operation).name),
            .got = "--in-place",
            .expected = "two buffers",
            .fix = "leave it out"});
  }
}

}  // namespace

const char* nccl_name_of(DataType type) {
  for (const TypeName& known : kTypes) {
    if (known.type == type) return known.name;
  }
  return comm::name_of(type);
}

std::optional<BenchOptions> parse_bench_options(const Arguments& arguments) {
  refuse_unknown_flag(arguments, kFlags, "bench");
  Words words;
  BenchOptions options;
  CLI::App app("Times one operation between processes, size after size; rank 0 prints nccl-tests' table.",
               "reigen bench");
  app.formatter(std::make_shared<Formatter>());
  add_options(app, words, options);
  Arguments reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes words from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw usage_error(error, "reigen bench all_reduce -n 2; `reigen bench --help` lists the options");
  }
  read_words(words, options);
  check_counts(options, app.count("--iters") > 0);
  check_backend(options, app.count("--machines") > 0);
  check_algorithm(options);
  try {
    comm::check_algorithms(rules_of(options), comm::find_backend(options.backend).families);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(error.what(), ExitCode::kUsage);
  }
  if (options.late_ms > 0) {  // fewer iterations, because each takes at least late_ms
    if (app.count("--iters") == 0) options.iterations = 5;
    if (app.count("--warmup") == 0) options.warmup = 1;
  }
  return options;
}

std::string named_algorithm(const BenchOptions& options) {
  return options.algorithm == comm::kTuned ? "" : options.algorithm.substr(0, options.algorithm.find('@'));
}

std::string rules_of(const BenchOptions& options) {
  if (options.algorithm.empty() || options.algorithm == comm::kTuned) return options.algorithm;
  return fmt::format("{}:{}", comm::name_of(comm::even_kind(options.operation)), options.algorithm);
}

std::vector<Problem> problems_of(const BenchOptions& options, int ranks, int rank) {
  Problem problem{.operation = options.operation,
                  .ranks = ranks,
                  .rank = rank,
                  .in_place = options.in_place || options.shared || options.operation == Operation::kBroadcast,
                  .type = options.type,
                  .op = options.op,
                  .as = options.as};
  if (problem.has_root()) problem.root = options.root;
  if (problem.root < 0 || problem.root >= ranks) {
    refuse({.what = "there is no such root",
            .got = fmt::format("-r {}", options.root),
            .expected = fmt::format("0 to {}", ranks - 1),
            .fix = "-r 0"});
  }
  if (options.machines > ranks) {
    refuse({.what = "there are more machines than ranks",
            .got = fmt::format("--machines {} -n {}", options.machines, ranks),
            .expected = "at most as many as ranks",
            .fix = fmt::format("--machines {}", ranks)});
  }
  if (comm::find_backend(options.backend).make == nullptr && ranks > 1) {
    refuse({.what = "the backend self is one rank alone",
            .got = fmt::format("--backend self -n {}", ranks),
            .expected = "-n 1, or another backend",
            .fix = "leave --backend out"});
  }
  if (options.operation == Operation::kSend && ranks < 2) {
    refuse({.what = "send_recv needs somebody to send to",
            .got = fmt::format("-n {}", ranks),
            .expected = "at least two ranks",
            .fix = "-n 2"});
  }
  if (options.operation == Operation::kBarrier) return {problem};
  const auto blocks = static_cast<std::size_t>(traits_of(options.operation).blocks ? ranks : 1);
  const bool in_parts = options.as != nullptr && options.as->first == Operation::kReduceScatter;
  const auto parts = static_cast<std::size_t>(in_parts ? ranks : 1);  // parts of equal size
  std::vector<Problem> problems;
  for (std::size_t size = options.smallest;; size *= options.factor) {
    const std::size_t elements = size / (blocks * comm::size_of(options.type));
    problem.count = std::max<std::size_t>(1, elements / parts) * parts;
    if (problems.empty() || problems.back().count != problem.count) problems.push_back(problem);
    if (size > options.largest / options.factor) return problems;
  }
}

}  // namespace reigen::apps::bench
