// Checks of this machine's suitability for real-time control: `robot-rl-infer --doctor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "options.h"

namespace robot_rl {

/// kBad: do not move a robot with it. kAdvice: it works, but could be better. kUnknown: this machine does not
/// report it.
enum class Verdict : std::uint8_t { kGood = 0, kAdvice, kBad, kUnknown };
const char* name_of(Verdict verdict);

/// One finding. `remedy`: what to do; empty if there is nothing to do.
struct Check {
  std::string name;
  Verdict verdict = Verdict::kUnknown;
  std::string found, remedy;
};

/// Checks of files under /proc, /sys, /etc and /var. `root` is the prefix of every path, for tests.
std::vector<Check> check_files(const Options& options, const std::filesystem::path& root = "/");

/// Checks by experiment: real-time priority, libraries, network cards, and for `seconds` how late this machine wakes
/// up.
std::vector<Check> check_live(const Options& options, double seconds = 1.0);

/// The rows as they are printed, one line each.
std::string doctor_text(const std::vector<Check>& checks);
/// The same as JSON: {"checks": [{"name", "verdict", "found", "remedy"}]}.
std::string doctor_json(const std::vector<Check>& checks);

/// Content of a small file without white space at its ends, in ASCII; nothing if it cannot be read.
std::optional<std::string> read_small(const std::filesystem::path& path);
/// The integer in a file; nothing if there is none.
std::optional<long long> read_number(const std::filesystem::path& path);
/// The paths of a folder with names that begin with `prefix`, sorted; none if there is no such folder.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder, const std::string& prefix);
/// Read the kernel's notation of a set of processors, such as "0,2-4".
std::set<int> parse_cpus(const std::string& text);
/// Write it.
std::string format_cpus(const std::set<int>& cpus);

}  // namespace robot_rl
