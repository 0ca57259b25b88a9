// The binary's command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backend.h"
#include "settings.h"

namespace robot_rl {

/// What to do; each action has its own function.
enum class Action : std::uint8_t { kRun, kCheck, kBench, kReplay, kHelp };

struct Options {
  Action action = Action::kRun;
  std::filesystem::path bundle;        // --bundle DIR
  std::filesystem::path signed_by;     // --signed-by KEY.pub: refuse bundles without a signature by that key
  std::string transport = "udp:127.0.0.1:9870";         // --transport
  /// --operator; "robot": only through the robot; "none": no operator, no heartbeat.
  std::string operator_address = "udp:127.0.0.1:9871";
  std::string team_name;               // --team-name: of this robot in its team
  std::string team_listen;             // --team-listen: where it listens for the others
  std::vector<std::string> team_send;  // --team-send: where the others listen
  BackendOptions backend;              // --backend, --precision, --onnxruntime, --engine-cache
  Settings settings;                   // --settings FILE.json, and --set name=value
  std::filesystem::path log;           // --log DIR or FILE.mcap; empty: none
  std::filesystem::path replay;        // --replay LOG
  std::filesystem::path follow;        // --follow DIR: take the bundles that DIR/next names; empty: none
  std::filesystem::path report;        // --report FILE.json: latencies, counters, what was permitted
  double connect_timeout_s = 10.0;     // --connect-timeout
  double seconds = 0.0;                // --seconds: duration of the run; 0: until a signal
  std::uint64_t commander = 0;         // --commander; 0: drawn at random
  int fifo_writer = 80, fifo_policy = 70, cpu_writer = -1, cpu_policy = -1;  // 0 or -1: the system's default
  bool watchdog = true;                // --no-watchdog
  double watchdog_s = 0.010;           // --watchdog-timeout: silence after which the watchdog takes over
  bool rehearse = true;                // --no-rehearsal
  bool take_over = false;
  bool require_realtime = false;       // --require-realtime: refuse to run without real-time priority and locked memory
};

/// Read the command line. Throws UserError: one line with the option, its value and the allowed values.
Options parse_options(int argc, char** argv);
/// The text of --help.
const char* help_text();

/// The actions; each returns the exit code (error.h) and throws the errors of error.h.
int run_robot(const Options& options);
int run_check(const Options& options);
int run_bench(const Options& options);
int run_replay(const Options& options);

}  // namespace robot_rl
