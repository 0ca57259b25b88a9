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

std::string realtime(const Options& options, const RunFacts& facts) {
  std::vector<std::string> lines;
  for (const auto& line : facts.not_permitted) lines.push_back(json_text(line));
  return JsonObject()
      .add("memory_locked", facts.memory_locked)
      .add("cpus_kept_awake", facts.cpus_awake)
      .add("fifo_writer", options.fifo_writer)
      .add("fifo_policy", options.fifo_policy)
      .add("cpu_writer", options.cpu_writer)
      .add("cpu_policy", options.cpu_policy)
      .raw("not_permitted", json_array(lines))
      .str();
}

std::string loop_counters(const LoopCounters& counters) {
  return JsonObject()
      .add("steps", counters.steps)
      .add("policy_commands", counters.policy_commands)
      .add("writer_commands", counters.writer_commands)
      .add("missed_deadlines", counters.missed_deadlines)
      .add("skipped_ticks", counters.skipped_ticks)
      .add("send_failed", counters.send_failed)
      .str();
}

std::string transport_counters(const TransportCounters& counters) {
  return JsonObject()
      .add("states", counters.states)
      .add("commands", counters.commands)
      .add("lost", counters.lost)
      .add("duplicate", counters.duplicate)
      .add("old", counters.old)
      .add("damaged", counters.damaged)
      .add("foreign", counters.foreign)
      .add("send_failed", counters.send_failed)
      .add("allocations", counters.allocations)
      .str();
}

std::string team_link_counters(const TeamLinkCounters& counters) {
  return JsonObject()
      .add("sent", counters.sent)
      .add("received", counters.received)
      .add("old", counters.old)
      .add("damaged", counters.damaged)
      .add("foreign", counters.foreign)
      .add("send_failed", counters.send_failed)
      .str();
}

std::string thread_use(const ThreadUse& use) {
  return JsonObject()
      .add("allocations", use.allocations)
      .add("network_allocations", use.network_allocations)
      .add("minor_faults", use.minor_faults)
      .add("major_faults", use.major_faults)
      .str();
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

std::string latencies(const Latencies& all) {
  return JsonObject()
      .raw("state_to_command", all.state_to_command.json())
      .raw("wake", all.wake.json())
      .raw("observe", all.observe.json())
      .raw("inference", all.inference.json())
      .raw("rehearsal", all.rehearsal.json())
      .raw("step_late", all.step_late.json())
      .raw("state_interval", all.state_interval.json())
      .raw("state_jitter", all.state_jitter.json())
      .raw("writer_late", all.writer_late.json())
      .raw("writer_send", all.writer_send.json())
      .raw("command_age", all.command_age.json())
      .str();
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
  report.raw("realtime", realtime(options, facts));
  report.raw("loop", loop_counters(loop.counters()));
  report.raw("transport_counters", transport_counters(facts.transport_counters));
  if (facts.team_link) report.raw("team_link", team_link_counters(*facts.team_link));
  report.raw("threads", JsonObject()
                            .raw("policy", thread_use(loop.policy_use()))
                            .raw("writer", thread_use(loop.writer_use()))
                            .str());
  report.raw("watchdog", JsonObject()
                             .add("running", facts.watchdog)
                             .add("takeovers", static_cast<unsigned long>(facts.watchdog_takeovers))
                             .add("longest_silence_s", seconds(facts.watchdog_longest_silence_ns))
                             .str());
  report.raw("log", JsonObject()
                        .add("path", facts.log_path)
                        .add("events", facts.log_events)
                        .add("lost", facts.log_lost)
                        .add("bytes", facts.log_bytes)
                        .add("failed", facts.log_why)
                        .str());
  report.raw("settings", settings_json(options.settings));
  report.raw("latencies", latencies(loop.latencies()));
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
