#include "doctor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "report.h"

namespace robot_rl {

const char* name_of(Verdict verdict) {
  static constexpr std::array kNames = {"good", "advice", "bad", "unknown"};
  return kNames.at(static_cast<std::size_t>(verdict));
}

std::optional<std::string> read_small(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(65536, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.empty() && file.bad()) return std::nullopt;
  const auto blank = [](char sign) { return sign == '\0' || sign == ' ' || sign == '\n' || sign == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  std::replace_if(text.begin(), text.end(), [](char sign) { return static_cast<unsigned char>(sign) >= 0x80; }, '?');
  return text;
}

std::optional<long long> read_number(const std::filesystem::path& path) {
  const auto text = read_small(path);
  if (!text) return std::nullopt;
  long long value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

std::vector<std::filesystem::path> entries(const std::filesystem::path& folder, const std::string& prefix) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  std::filesystem::directory_iterator place(folder, error);
  for (; !error && place != std::filesystem::directory_iterator(); place.increment(error)) {
    if (place->path().filename().string().starts_with(prefix)) found.push_back(place->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::set<int> parse_cpus(const std::string& text) {
  std::set<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto result = std::from_chars(at, end, first);
    if (result.ec != std::errc()) return cpus;
    int last = first;
    if (result.ptr < end && *result.ptr == '-') {
      result = std::from_chars(result.ptr + 1, end, last);
      if (result.ec != std::errc()) return cpus;
    }
    for (int cpu = first; cpu <= last && cpu < 4096; ++cpu) cpus.insert(cpu);
    at = result.ptr + 1;
  }
  return cpus;
}

std::string format_cpus(const std::set<int>& cpus) {
  std::string text;
  for (auto at = cpus.begin(); at != cpus.end();) {
    auto last = at;
    for (auto next = std::next(at); next != cpus.end() && *next == *last + 1; ++next) last = next;
    if (!text.empty()) text += ',';
    text += std::to_string(*at);
    if (last != at) text += '-' + std::to_string(*last);
    at = std::next(last);
  }
  return text;
}

std::string doctor_text(const std::vector<Check>& checks) {
  std::string text;
  int bad = 0, advice = 0;
  for (const auto& check : checks) {
    bad += check.verdict == Verdict::kBad;
    advice += check.verdict == Verdict::kAdvice;
    std::array<char, 64> head{};
    std::snprintf(head.data(), head.size(), "%-8s %-16s ", name_of(check.verdict), check.name.substr(0, 32).c_str());
    text += head.data();
    text += one_line(check.found + (check.remedy.empty() ? "" : "; " + check.remedy)) + '\n';
  }
  if (bad) return text + "doctor: " + std::to_string(bad) + " bad: fix them before a robot moves\n";
  if (advice) return text + "doctor: nothing bad, " + std::to_string(advice) + " could be better\n";
  return text + "doctor: all good\n";
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char sign : one_line(text)) {
    if (sign == '"' || sign == '\\') out += '\\';
    out += sign;
  }
  return out + '"';
}

}  // namespace

std::string doctor_json(const std::vector<Check>& checks) {
  std::string text = "{\"checks\": [";
  for (const auto& check : checks) {
    text += &check == checks.data() ? "\n" : ",\n";
    text += " {\"name\": " + quoted(check.name) + ", \"verdict\": " + quoted(name_of(check.verdict)) +
            ", \"found\": " + quoted(check.found) + ", \"remedy\": " + quoted(check.remedy) + "}";
  }
  return text + "\n]}\n";
}

int run_doctor(const Options& options) {
  auto checks = check_files(options);
  const auto live = check_live(options, options.seconds > 0 ? options.seconds : 1.0);
  checks.insert(checks.end(), live.begin(), live.end());
  std::fputs(doctor_text(checks).c_str(), stdout);
  if (!options.report.empty()) write_whole(options.report, doctor_json(checks));
  const bool bad = std::any_of(checks.begin(), checks.end(), [](const Check& c) { return c.verdict == Verdict::kBad; });
  return static_cast<int>(bad ? ExitCode::kRefused : ExitCode::kDone);
}

}  // namespace robot_rl
