// The program behind scripts/check/grid, scripts/check/soak and scripts/check/faults:
//   comm_trial serve [--host H]      the store for ranks that are processes; prints its port; ends when stdin ends
//   comm_trial grid|soak|fault ...        ranks as threads (--ranks N), or one rank (--rank R --ranks N --port P)
// The result is one line of JSON. A wrong value is reported on stderr and ends all ranks with exit code 1.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/store/tcp_store.h"
#include "trial/commands.h"

namespace reigen::trial {

namespace {

int serve(const Arguments& arguments) {
  store::TcpStoreServer server({.host = arguments.host, .job = kJob});
  fmt::print("{}\n", server.port());
  std::fflush(stdout);
  char nothing = 0;
  while (::read(STDIN_FILENO, &nothing, 1) > 0) {
  }
  return 0;
}

// Prints the error and ends all ranks of this process at once.
int fail(const Arguments& arguments, int rank, const std::exception& error, int code) {
  fmt::print(stderr, "rank {} of {}: {}\n", rank, arguments.ranks, error.what());
  std::fflush(nullptr);
  ::_exit(code);
}

int run_rank(Command command, const Arguments& arguments, int rank, const std::shared_ptr<store::Store>& store) {
  try {
    return command({arguments, rank, store});
  } catch (const Error& error) {
    return fail(arguments, rank, error, static_cast<int>(error.exit_code()));
  } catch (const std::exception& error) {
    return fail(arguments, rank, error, 70);
  }
}

int run_threads(Command command, const Arguments& arguments) {
  const auto store = store::make_memory_store();
  std::vector<std::thread> threads;
  std::atomic<int> worst{0};
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      if (const int code = run_rank(command, arguments, rank, store); code != 0) worst = code;
    });
  }
  for (auto& thread : threads) thread.join();
  return worst;
}

int run(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const Arguments arguments = parse(words);
  if (arguments.command == "serve") return serve(arguments);
  const Command command = find_command(arguments.command);
  if (arguments.rank < 0) return run_threads(command, arguments);
  std::shared_ptr<store::Store> store;
  try {
    store = store::connect_tcp_store(
        {.host = arguments.host, .port = static_cast<std::uint16_t>(arguments.port), .job = arguments.job});
  } catch (const Error& error) {
    return fail(arguments, arguments.rank, error, static_cast<int>(error.exit_code()));
  }
  return run_rank(command, arguments, arguments.rank, store);
}

}  // namespace

}  // namespace reigen::trial

int main(int argc, char** argv) {
  try {
    return reigen::trial::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "trial: {}\n", error.what());
    return 2;
  }
}
