// Entry point of the program: one line for every error, and its exit code.
#include <cstdio>
#include <exception>
#include <system_error>

#include "error.h"
#include "options.h"

namespace {

using robot_rl::Action;
using robot_rl::ExitCode;

int run_action(const robot_rl::Options& options) {
  switch (options.action) {
    case Action::kRun:
      return robot_rl::run_robot(options);
    case Action::kCheck:
      return robot_rl::run_check(options);
    case Action::kBench:
      return robot_rl::run_bench(options);
    case Action::kReplay:
      return robot_rl::run_replay(options);
    case Action::kHelp:
      break;
  }
  std::fputs(robot_rl::help_text(), stdout);
  return 0;
}

int fail(ExitCode code, const std::string& line) {
  std::fprintf(stderr, "robot-rl-infer: %s\n", line.c_str());
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run_action(robot_rl::parse_options(argc, argv));
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    return written || code != 0 ? code : fail(ExitCode::kDiskFull, "what was to be said cannot be written to stdout");
  } catch (const robot_rl::UserError& error) {
    return fail(ExitCode::kBadInput, error.what());
  } catch (const robot_rl::ContractError& error) {
    return fail(ExitCode::kRefused, std::string("refused: ") + error.what());
  } catch (const std::system_error& error) {
    const bool full = robot_rl::is_full(error.code());
    return fail(full ? ExitCode::kDiskFull : ExitCode::kFault, robot_rl::one_line(error.what()));
  } catch (const std::exception& error) {
    return fail(ExitCode::kFault, robot_rl::one_line(error.what()));
  }
}
