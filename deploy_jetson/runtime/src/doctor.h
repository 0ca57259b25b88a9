// What of this machine helps or hinders real time: the checks behind `robot-rl-infer --doctor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "options.h"

namespace robot_rl {

/// kBad: do not move a robot with it. kAdvice: it works, and would be better otherwise. kUnknown: this machine does not
/// say.
enum class Verdict : std::uint8_t { kGood = 0, kAdvice, kBad, kUnknown };
const char* name_of(Verdict verdict);

/// One finding. `remedy` says what to do; empty where nothing is to be done.
struct Check {
  std::string name;
  Verdict verdict = Verdict::kUnknown;
  std::string found, remedy;
};

/// What the files under /proc, /sys, /etc and /var say. `root` stands before every path, so that a test brings its own.
std::vector<Check> check_files(const Options& options, const std::filesystem::path& root = "/");

/// What only trying tells: real-time priority, libraries, network cards, and for `seconds` how late this machine wakes
/// up.
std::vector<Check> check_live(const Options& options, double seconds = 1.0);

/// The rows as they are printed, one line each.
std::string doctor_text(const std::vector<Check>& checks);
/// The same as JSON: {"checks": [{"name", "verdict", "found", "remedy"}]}.
std::string doctor_json(const std::vector<Check>& checks);

/// Content of a small file without white space at its ends, in ASCII; nothing where it cannot be read.
std::optional<std::string> read_small(const std::filesystem::path& path);
/// A file's whole number; nothing where there is none.
std::optional<long long> read_number(const std::filesystem::path& path);
/// The paths of a folder whose names begin with `prefix`, in order; none where there is no such folder.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder, const std::string& prefix);
/// Read the kernel's notation of a set of processors, such as "0,2-4".
std::set<int> parse_cpus(const std::string& text);
/// Write it.
std::string format_cpus(const std::set<int>& cpus);

}  // namespace robot_rl
