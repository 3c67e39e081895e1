#include "reigen/train/stop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "reigen/base/error.h"
#include "train/run/agree.h"
#include "train/run/process_age.h"

namespace reigen::train {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// SIGINTs within this time count as one request, because a launcher may pass on a SIGINT that the rank has already got.
constexpr std::int64_t kOneWish = kSecond / 2;
constexpr int kStandardStreams = 3;

struct Name {
  int signal;
  const char* text;
};
constexpr std::array<Name, 7> kNames = {{{SIGINT, "INT"},
                                         {SIGTERM, "TERM"},
                                         {SIGHUP, "HUP"},
                                         {SIGUSR1, "USR1"},
                                         {SIGUSR2, "USR2"},
                                         {SIGXCPU, "XCPU"},
                                         {SIGQUIT, "QUIT"}}};

// State that the signal handler uses must be global.
std::atomic<bool> g_asked{false};
std::atomic<std::int64_t> g_interrupted_at{0};  // time of the first SIGINT; 0 means none yet
std::atomic<std::int64_t> g_ends_at{0};         // time at which to stop without a signal; 0 means never
std::atomic<bool> g_tells{false};
std::atomic<unsigned> g_terminals{0};  // bit N is set if descriptor N was a terminal at the start
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * kSecond + time.tv_nsec;
}

// ---- in the handler: only functions that are allowed in a signal handler (signal-safety(7))

void add(std::array<char, 160>& line, std::size_t& length, const char* text) {
  const std::size_t size = std::min(std::strlen(text), line.size() - length);
  std::memcpy(line.data() + length, text, size);
  length += size;
}

void tell(int signal) {
  std::array<char, 160> line;
  std::size_t length = 0;
  if ((g_terminals.load() & (1U << STDERR_FILENO)) != 0) add(line, length, "\r\033[K");  // erases a progress bar
  add(line, length, "reigen: SIG");
  const auto* const name =
      std::find_if(kNames.begin(), kNames.end(), [signal](const Name& n) { return n.signal == signal; });
  add(line, length, name == kNames.end() ? "NAL" : name->text);
  add(line, length, ": saving after this step");
  add(line, length, signal == SIGINT ? "; Ctrl-C once more ends at once, without saving\n" : "\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), length);
}

// Redirects standard streams to /dev/null if their terminal hung up. Writing to such a terminal fails, which not all
// code handles.
void leave_terminals_that_hung_up() {
  for (int fd = 0; fd < kStandardStreams; ++fd) {
    termios ignored{};
    if ((g_terminals.load() & (1U << fd)) == 0 || ::tcgetattr(fd, &ignored) == 0 || errno != EIO) continue;
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) continue;
    ::dup2(null, fd);
    ::close(null);
  }
}

void on_signal(int signal) {
  const int error = errno;
  if (signal == SIGHUP) leave_terminals_that_hung_up();
  const std::int64_t time = now();
  std::int64_t first = 0;
  const bool again = signal == SIGINT && !g_interrupted_at.compare_exchange_strong(first, time);
  if (again && time - first > kOneWish) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  const bool heard = g_asked.exchange(true);
  if (g_tells.load() && !again && (!heard || signal == SIGINT)) tell(signal);
  errno = error;
}

// ---- outside of the handler

bool is_ignored(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

bool is_ours(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == on_signal;
}

// Whether the run leaves this signal ignored because it was ignored at the start. SIGINT and SIGTERM are always
// handled, because a sender of these signals wants to stop the run. (A shell makes its background jobs ignore SIGINT.)
bool stays_ignored(int signal) { return signal != SIGINT && signal != SIGTERM && is_ignored(signal); }

void install(int signal) {
  if (stays_ignored(signal)) return;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, nullptr) == 0) return;
  throw InvalidArgument(Report{.what = fmt::format("signal {} cannot be a wish to stop", signal),
                               .got = ::strsignal(signal),
                               .expected = "signals that a process can catch",
                               .fix = "SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU"});
}

std::string upper(const std::string& text) {
  std::string word;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0)
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return word;
}

std::string known_names() {
  std::vector<std::string> names;
  for (const Name& name : kNames) {
    std::string text(name.text);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    names.push_back(text);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

int signal_named(const std::string& word, const std::string& all) {
  const std::string text = upper(word);
  const std::string bare = text.starts_with("SIG") ? text.substr(3) : text;
  std::vector<std::string> names;
  for (const Name& name : kNames) {
    if (bare == name.text) return name.signal;
    names.emplace_back(name.text);
  }
  std::string near = base::nearest(bare, names);
  std::transform(near.begin(), near.end(), near.begin(), [](unsigned char c) { return std::tolower(c); });
  throw InvalidArgument(
      Report{.what = fmt::format("run.stop_signals = {}: {} can be no wish to stop", all, word.empty() ? "''" : word),
             .got = word.empty() ? "an empty name" : word,
             .expected = fmt::format("some of {}, with commas between them; or none", known_names()),
             .fix = near.empty() ? "--run.stop_signals int,term,usr1" : fmt::format("did you mean {}?", near)});
}

[[noreturn]] void refuse_time(const std::string& text) {
  throw InvalidArgument(Report{.what = fmt::format("run.stop_after = {}: this is no time", text),
                               .got = text,
                               .expected = "a time above 0, such as 90 (seconds), 45m, 3h50m, 1d2h or 3:50:00",
                               .fix = "--run.stop_after 3h50m"});
}

// Parses "3:50:00" or "50:00", or Slurm's format with days: "1-03:50:00".
double clock_seconds(const std::string& text) {
  const std::size_t dash = text.find('-');
  double days = 0;
  std::string rest = text;
  if (dash != std::string::npos) {
    const auto number = base::parse<double>(std::string_view(text).substr(0, dash));
    if (!number) refuse_time(text);
    days = *number;
    rest = text.substr(dash + 1);
  }
  double seconds = 0;
  std::istringstream parts(rest + ":");
  int count = 0;
  for (std::string part; std::getline(parts, part, ':'); ++count) {
    const auto value = base::parse<unsigned>(part);
    if (!value) refuse_time(text);
    seconds = seconds * 60 + *value;
  }
  if (count > 3 || count < 2) refuse_time(text);
  return days * 86400 + seconds;
}

// Parses "3h50m": numbers with units, larger units first.
double unit_seconds(const std::string& text) {
  constexpr std::array<std::pair<char, double>, 4> kUnits = {{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};
  double seconds = 0;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  const auto* last = kUnits.begin();
  while (at != end) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0)) refuse_time(text);
    at = next;
    const char unit = at == end ? 's' : *at++;
    const auto* const found = std::find_if(last, kUnits.end(), [unit](const auto& u) { return u.first == unit; });
    if (found == kUnits.end()) refuse_time(text);
    last = found + 1;
    seconds += number * found->second;
  }
  return seconds;
}

}  // namespace

void install_stop_handlers(const StopOptions& options) {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (is_ours(signal)) ::signal(signal, SIG_DFL);
  }
  unsigned terminals = 0;
  for (int fd = 0; fd < kStandardStreams; ++fd) terminals |= ::isatty(fd) == 1 ? 1U << fd : 0U;
  g_terminals.store(terminals);
  g_tells.store(options.tells);
  g_asked.store(false);
  g_interrupted_at.store(0);
  const auto left = static_cast<double>(options.after.count()) / 1e3 - process_age_seconds();
  g_ends_at.store(options.after.count() > 0 ? now() + static_cast<std::int64_t>(std::max(0.0, left) * 1e9) : 0);
  for (const int signal : options.signals) install(signal);
  ::signal(SIGPIPE, SIG_IGN);  // training goes on if the reader of the output goes away
}

bool stop_requested() {
  const std::int64_t ends_at = g_ends_at.load();
  return g_asked.load() || (ends_at != 0 && now() >= ends_at);
}

bool any_stop_requested(const Communicator& world) { return any_wishes_to_stop(world, stop_requested()); }

std::vector<int> parse_stop_signals(const std::string& text) {
  std::vector<int> signals;
  if (upper(text) == "NONE") return signals;
  for (const std::string& word : base::split(text.empty() ? " " : text, ',')) {
    const int signal = signal_named(word, text);
    if (std::find(signals.begin(), signals.end(), signal) == signals.end()) signals.push_back(signal);
  }
  return signals;
}

std::chrono::milliseconds parse_stop_time(const std::string& text) {
  if (text.empty()) return std::chrono::milliseconds(0);
  constexpr double kMost = 1e9;  // in seconds: about 30 years
  const double seconds = text.find(':') == std::string::npos ? unit_seconds(text) : clock_seconds(text);
  if (!(seconds > 0) || seconds > kMost) refuse_time(text);
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace reigen::train
