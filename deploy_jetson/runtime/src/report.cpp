#include "report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "json.h"

namespace robot_rl {

namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns / 1000) / 1e6; }  // to the microsecond

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%016lx", static_cast<unsigned long>(value));
  return text;
}

JsonObject realtime(const Options& options, const RunFacts& facts) {
  std::vector<std::string> lines;
  for (const auto& line : facts.not_permitted) lines.push_back(json_text(line));
  JsonObject all("memory_locked", facts.memory_locked, "cpus_kept_awake", facts.cpus_awake, "fifo_writer",
                 options.fifo_writer, "fifo_policy", options.fifo_policy, "cpu_writer", options.cpu_writer,
                 "cpu_policy", options.cpu_policy);
  return all.raw("not_permitted", json_array(lines));
}

JsonObject loop_counters(const LoopCounters& c) {
  return JsonObject("steps", c.steps, "policy_commands", c.policy_commands, "writer_commands", c.writer_commands,
                    "missed_deadlines", c.missed_deadlines, "skipped_ticks", c.skipped_ticks, "send_failed",
                    c.send_failed);
}

JsonObject transport_counters(const TransportCounters& counters) {
  JsonObject all;
  for (const auto& [name, member] : kTransportCounters) all.add(name, counters.*member);
  return all;
}

JsonObject team_link_counters(const TeamLinkCounters& c) {
  return JsonObject("sent", c.sent, "received", c.received, "old", c.old, "damaged", c.damaged, "foreign", c.foreign,
                    "send_failed", c.send_failed);
}

JsonObject thread_use(const ThreadUse& use) {
  return JsonObject("allocations", use.allocations, "network_allocations", use.network_allocations, "minor_faults",
                    use.minor_faults, "major_faults", use.major_faults);
}

std::string changes(const RunFacts& facts, const Contract& contract) {
  std::vector<std::string> all;
  for (const Change& change : facts.changes) {
    JsonObject one;
    one.add("time_s", seconds(change.time_ns - facts.begin_ns)).add("phase", name_of(change.phase));
    one.add("fault", name_of(change.finding.fault));
    if (change.finding) one.add("text", describe(change.finding, contract));
    all.push_back(one.str());
  }
  return json_array(all);
}

std::string bundles(const RunFacts& facts) {
  std::vector<std::string> all;
  for (const BundleFate& fate : facts.bundles) {
    JsonObject one;
    one.add("identity", fate.identity).add("path", fate.path);
    one.raw("time_s", fate.time_ns > 0 ? json_number(seconds(fate.time_ns - facts.begin_ns)) : "null");
    one.raw("first_step", fate.first_step >= 0 ? std::to_string(fate.first_step) : "null");
    one.add("refused", fate.refused);
    all.push_back(one.str());
  }
  return json_array(all);
}

JsonObject latencies(const Latencies& all) {
  JsonObject object;
  for (const auto& [name, member] : kLatencies) object.raw(name, (all.*member).json());
  return object;
}

}  // namespace

std::string report_json(const Options& options, const Bundle& bundle, const Loop& loop, const RunFacts& facts) {
  const Contract& contract = bundle.contract;
  JsonObject report;
  report.add("program", "robot-rl-infer").add("bundle", bundle.identity).add("robot", contract.robot);
  report.add("run_id", contract.training.run_id).add("task", contract.training.task);
  report.add("backend", facts.backend).add("backend_choice", facts.backend_why).add("refused", facts.refused);
  report.add("transport", facts.transport).add("commander", hex(options.commander));
  report.add("seconds", seconds(facts.end_ns - facts.begin_ns)).add("control_period_s", contract.control_period_s);
  report.add("fault", name_of(facts.fault)).raw("changes", changes(facts, contract));
  report.raw("bundles", bundles(facts));
  report.add("realtime", realtime(options, facts)).add("loop", loop_counters(loop.counters()));
  report.add("transport_counters", transport_counters(facts.transport_counters));
  if (facts.team_link) report.add("team_link", team_link_counters(*facts.team_link));
  report.add("threads",
             JsonObject("policy", thread_use(loop.policy_use()), "writer", thread_use(loop.writer_use())));
  report.add("watchdog", JsonObject("running", facts.watchdog, "takeovers", std::uint64_t{facts.watchdog_takeovers},
                                    "longest_silence_s", seconds(facts.watchdog_longest_silence_ns)));
  report.add("log", JsonObject("path", facts.log_path, "events", facts.log_events, "lost", facts.log_lost, "bytes",
                               facts.log_bytes, "failed", facts.log_why));
  report.raw("settings", settings_json(options.settings));
  report.add("latencies", latencies(loop.latencies()));
  return report.str();
}

void write_whole(const std::filesystem::path& path, const std::string& text) {
  std::error_code code;
  const bool plain = !std::filesystem::exists(path, code) || std::filesystem::is_regular_file(path, code);
  const std::string part = path.string() + (plain ? ".part" : "");  // a device or a pipe is not replaced
  const auto fail = [&] {
    const int error = errno;
    if (plain) unlink(part.c_str());
    throw std::system_error(error, std::generic_category(), path.string() + " cannot be written");
  };
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | (plain ? O_TRUNC : 0) | O_CLOEXEC, 0644);
  if (file < 0) fail();
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(file, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      close(file);
      errno = error;
      fail();
    }
    at += static_cast<std::size_t>(wrote);
  }
  fsync(file);
  close(file);
  if (plain && rename(part.c_str(), path.c_str()) != 0) fail();
}

}  // namespace robot_rl
