#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "address.h"
#include "error.h"

namespace robot_rl {

namespace {

/// One option; `value`: the placeholder of its value in the help, empty for an option without a value.
struct OptionRow {
  std::string_view name, value;
  void (*take)(Options&, const std::string& value);
  std::string_view help;
};

std::string one_number(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

[[noreturn]] void refuse_value(std::string_view name, const std::string& value, const std::string& wanted) {
  throw UserError("--" + std::string(name) + "=" + value + ": must be " + wanted);
}

template <class T>
std::optional<T> parse(std::string_view text, int base = 10) {
  T value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<T>) {
    result = std::from_chars(text.data(), text.data() + text.size(), value);
  } else {
    result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  }
  if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

double seconds(std::string_view name, const std::string& value, double lower, double upper) {
  const auto number = parse<double>(value);
  if (!number || !(*number >= lower && *number <= upper)) {
    refuse_value(name, value, "a number of seconds from " + one_number(lower) + " to " + one_number(upper));
  }
  return *number;
}

int whole(std::string_view name, const std::string& value, int lower, int upper) {
  const auto number = parse<int>(value);
  if (!number || *number < lower || *number > upper) {
    refuse_value(name, value, "a whole number from " + std::to_string(lower) + " to " + std::to_string(upper));
  }
  return *number;
}

std::string choice(std::string_view name, const std::string& value, std::span<const std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  refuse_value(name, value, "one of " + joined(choices));
}

std::string some(std::string_view name, const std::string& value) {
  if (value.empty()) refuse_value(name, value, "a path or an address");
  return value;
}

std::string udp(std::string_view name, const std::string& value) {
  if (!value.starts_with("udp:")) refuse_value(name, value, "udp:HOST:PORT");
  parse_address(value, "--" + std::string(name));
  return value;
}

std::vector<std::string> addresses(std::string_view name, const std::string& value) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= value.size();) {
    const auto end = std::min(value.find(',', at), value.size());
    all.push_back(udp(name, value.substr(at, end - at)));
    at = end + 1;
  }
  return all;
}

std::uint64_t commander(const std::string& value) {
  const bool hex = value.starts_with("0x");
  const auto number = parse<std::uint64_t>(std::string_view(value).substr(hex ? 2 : 0), hex ? 16 : 10);
  if (!number || *number == 0) refuse_value("commander", value, "a number from 1 to 2^64-1, decimal or 0x...");
  return *number;
}

void set(Options& options, const std::string& value) {
  const auto at = value.find('=');
  if (at == std::string::npos || at == 0) refuse_value("set", value, "NAME=VALUE, such as limits.tilt_rad=0.8");
  set_setting(options.settings, value.substr(0, at), value.substr(at + 1));
}

void act(Options& options, Action action) {
  if (options.action == Action::kHelp || action == Action::kHelp) {
    options.action = Action::kHelp;
  } else if (options.action != Action::kRun && options.action != action) {
    throw UserError("--check, --bench and --replay exclude each other; give one of them");
  } else {
    options.action = action;
  }
}

constexpr std::string_view kBackends[] = {"auto", "onnxruntime", "tensorrt"};
constexpr std::string_view kPrecisions[] = {"auto", "fp32", "fp16"};
using O = Options;
using V = const std::string;

const OptionRow kRows[] = {
    {"bundle", "DIR", [](O& o, V& v) { o.bundle = some("bundle", v); }, "the policy bundle"},
    {"signed-by", "KEY.pub", [](O& o, V& v) { o.signed_by = some("signed-by", v); },
     "accept only a bundle signed with this Ed25519 key (PEM)"},
    {"check", "", [](O& o, V&) { act(o, Action::kCheck); }, "check the bundle on its backend and exit; nothing moves"},
    {"bench", "", [](O& o, V&) { act(o, Action::kBench); }, "measure the latency of the network at a fixed rate"},
    {"replay", "LOG", [](O& o, V& v) { act(o, Action::kReplay), o.replay = some("replay", v); },
     "replay a log and compare every command"},
    {"transport", "ADDRESS", [](O& o, V& v) { o.transport = some("transport", v); },
     "address of the robot: udp:HOST:PORT, default udp:127.0.0.1:9870; shm:NAME;\n"
     "dds:unitree_go or dds:unitree_hg"},
    {"operator", "ADDRESS", [](O& o, V& v) { o.operator_address = some("operator", v); },
     "address to listen at for the operator, default udp:127.0.0.1:9871; robot: via the robot;\n"
     "none: no operator, the robot stands up and walks without one (simulation only)"},
    {"team-name", "NAME", [](O& o, V& v) { o.team_name = some("team-name", v); }, "name of this robot in its team"},
    {"team-listen", "ADDRESS", [](O& o, V& v) { o.team_listen = udp("team-listen", v); },
     "udp:HOST:PORT to listen at for messages of the other robots of the team"},
    {"team-send", "ADDRESS,...", [](O& o, V& v) { o.team_send = addresses("team-send", v); },
     "where the other robots listen"},
    {"backend", "NAME", [](O& o, V& v) { o.backend.name = choice("backend", v, kBackends); },
     "auto, onnxruntime or tensorrt"},
    {"precision", "NAME", [](O& o, V& v) { o.backend.precision = choice("precision", v, kPrecisions); },
     "fp32, fp16 or auto (TensorRT)"},
    {"onnxruntime", "FILE", [](O& o, V& v) { o.backend.library = some("onnxruntime", v); },
     "libonnxruntime.so to load"},
    {"engine-cache", "DIR", [](O& o, V& v) { o.backend.cache = some("engine-cache", v); },
     "folder of the TensorRT engines that were built"},
    {"settings", "FILE", [](O& o, V& v) { read_settings(o.settings, some("settings", v)); },
     "JSON file with periods and safety limits"},
    {"set", "NAME=VALUE", [](O& o, V& v) { set(o, v); },
     "set one of them, such as stand_s=3 or limits.tilt_rad=0.8;\n"
     "overrides --settings, whatever the order"},
    {"log", "PATH", [](O& o, V& v) { o.log = some("log", v); },
     "write a log: a file *.mcap, or a folder to create one in"},
    {"follow", "DIR", [](O& o, V& v) { o.follow = some("follow", v); },
     "while it runs, take over the bundle that the file DIR/next names, between two\n"
     "control steps; DIR/current and DIR/refused answer"},
    {"report", "FILE", [](O& o, V& v) { o.report = some("report", v); },
     "write latencies and counters as JSON at the end"},
    {"connect-timeout", "S", [](O& o, V& v) { o.connect_timeout_s = seconds("connect-timeout", v, 0.01, 86400); },
     "seconds to wait for the robot, default 10"},
    {"seconds", "S", [](O& o, V& v) { o.seconds = seconds("seconds", v, 0, 1e7); },
     "stop after so many seconds; 0: run until a signal"},
    {"commander", "ID", [](O& o, V& v) { o.commander = commander(v); }, "identifier in the commands; default: random"},
    {"fifo-writer", "N", [](O& o, V& v) { o.fifo_writer = whole("fifo-writer", v, 0, 98); },
     "SCHED_FIFO priority of the writer, default 80; 0: none"},
    {"fifo-policy", "N", [](O& o, V& v) { o.fifo_policy = whole("fifo-policy", v, 0, 98); },
     "SCHED_FIFO priority of the policy, default 70; 0: none"},
    {"cpu-writer", "N", [](O& o, V& v) { o.cpu_writer = whole("cpu-writer", v, -1, 1023); }, "pin the writer to a CPU"},
    {"cpu-policy", "N", [](O& o, V& v) { o.cpu_policy = whole("cpu-policy", v, -1, 1023); }, "pin the policy to a CPU"},
    {"watchdog-timeout", "S", [](O& o, V& v) { o.watchdog_s = seconds("watchdog-timeout", v, 0.004, 10); },
     "seconds of silence after which the watchdog takes over, default 0.01"},
    {"no-watchdog", "", [](O& o, V&) { o.watchdog = false; },
     "do not start the second process, which damps if this one dies"},
    {"no-rehearsal", "", [](O& o, V&) { o.rehearse = false; },
     "do not run the network an additional time before each state to keep its weights in the cache"},
    {"take-over", "", [](O& o, V&) { o.take_over = true; },
     "command a robot that another program commands; without it such a robot is refused"},
    {"require-realtime", "", [](O& o, V&) { o.require_realtime = true; },
     "do not run where priority or locked memory is not permitted"},
    {"help", "", [](O& o, V&) { act(o, Action::kHelp); }, "this text"},
};

const OptionRow& find_option(std::string_view name) {
  for (const OptionRow& row : kRows) {
    if (row.name == name) return row;
  }
  throw UserError("--" + std::string(name) + " is unknown; robot-rl-infer --help lists the options");
}

/// Check at the start that the report can be written, not after hours of a run.
void check_report(const std::filesystem::path& path) {
  std::error_code code;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const bool plain = !std::filesystem::exists(path, code) || std::filesystem::is_regular_file(path, code);
  int why = std::filesystem::is_directory(path, code) ? EISDIR : 0;
  if (why == 0 && access((plain ? folder : path).c_str(), W_OK) != 0) why = errno;
  if (why == 0) return;
  throw UserError("--report=" + path.string() + ": cannot be written (" + std::strerror(why) +
                  "); name a file in a folder that exists");
}

/// Check that the folder is there, and can be written to.
void check_follow(const std::filesystem::path& folder) {
  std::error_code code;
  int why = std::filesystem::is_directory(folder, code) ? 0 : ENOTDIR;
  if (why == 0 && access(folder.c_str(), W_OK | X_OK) != 0) why = errno;
  if (why == 0) return;
  throw UserError("--follow=" + folder.string() + ": cannot be used (" + std::strerror(why) +
                  "); name a folder that exists, in which files can be made");
}

/// Check the addresses before anything is started.
void check_addresses(const Options& options) {
  const Address robot = parse_address(options.transport, "--transport");
  if (robot.options.contains("states")) {
    throw UserError("--transport=" + options.transport + ": a policy needs states; remove the option 'states'");
  }
  if (options.operator_address == "robot" || options.operator_address == "none") return;
  if (!options.operator_address.starts_with("udp:")) {
    refuse_value("operator", options.operator_address, "udp:HOST:PORT, robot or none");
  }
  parse_address(options.operator_address, "--operator");
}

void check_whole(Options& options) {
  if (options.action != Action::kReplay && options.bundle.empty()) {
    throw UserError("--bundle is missing; give the folder of the policy to run");
  }
  if (options.operator_address == "none") options.settings.limits.operator_s = 0;
  if (!options.report.empty()) check_report(options.report);
  if (options.action == Action::kRun && !options.follow.empty()) check_follow(options.follow);
  if (options.action == Action::kRun) check_addresses(options);
  const bool watched = options.watchdog && options.action == Action::kRun;
  if (watched && options.watchdog_s < 2 * options.settings.writer_period_s) {
    throw UserError("--watchdog-timeout=" + one_number(options.watchdog_s) +
                    ": must be at least two writer periods of " + one_number(options.settings.writer_period_s) + " s");
  }
}

std::string make_help() {
  std::string text =
      "robot-rl-infer: run a policy bundle on a robot.\n\n"
      "  robot-rl-infer --bundle DIR [--transport ADDRESS] [--operator ADDRESS] [--log DIR] ...\n"
      "  robot-rl-infer --bundle DIR --check | --bench\n"
      "  robot-rl-infer --replay LOG\n\n";
  constexpr std::size_t kColumn = 26;
  for (const OptionRow& row : kRows) {
    std::string line = "  --" + std::string(row.name) + (row.value.empty() ? "" : " ") + std::string(row.value);
    line.append(line.size() < kColumn ? kColumn - line.size() : 1, ' ');
    for (const char sign : row.help) line += sign == '\n' ? "\n" + std::string(kColumn, ' ') : std::string(1, sign);
    text += line + "\n";
  }
  return text +
         "\nExit code: 0 done, 2 invalid option or setting, 3 the bundle was refused, 4 a fault ended the run,\n"
         "74 the disk is full.\n";
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> sets;  // applied after the files of settings, whatever the order
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "-h") {
      act(options, Action::kHelp);
      continue;
    }
    if (!word.starts_with("--") || word.size() == 2) {
      throw UserError("'" + std::string(word) + "' is not an option; options begin with --, see robot-rl-infer --help");
    }
    const auto equals = word.find('=');
    const bool joined = equals != std::string_view::npos;
    const OptionRow& row = find_option(word.substr(2, joined ? equals - 2 : equals));
    if (row.value.empty() && joined) throw UserError("--" + std::string(row.name) + " takes no value");
    if (!row.value.empty() && !joined && i + 1 >= argc) {
      throw UserError("--" + std::string(row.name) + " needs a value: " + std::string(row.value));
    }
    std::string value;
    if (!row.value.empty()) value = joined ? std::string(word.substr(equals + 1)) : std::string(argv[++i]);
    if (row.name == "set") {
      sets.push_back(std::move(value));
    } else {
      row.take(options, value);
    }
  }
  for (const auto& value : sets) set(options, value);
  if (options.action != Action::kHelp) check_whole(options);
  return options;
}

const char* help_text() {
  static const std::string kText = make_help();
  return kText.c_str();
}

}  // namespace robot_rl
