// robot-rl-infer --bench: latencies of a bundle's network at 500 Hz, as JSON.
#include <cmath>
#include <cstdio>

#include "bundle.h"
#include "json.h"
#include "options.h"
#include "paced.h"
#include "report.h"
#include "rt.h"

namespace robot_rl {

namespace {

constexpr double kPeriodS = 0.002, kDefaultSeconds = 10.0;

JsonObject percentiles(const PacedLatency& latency) {
  JsonObject all;
  all.add("p50", latency.p50_us).add("p99", latency.p99_us).add("p99.9", latency.p999_us).add("max", latency.max_us);
  return all;
}

std::string report(const Bundle& bundle, const Backend& backend, const std::string& why, const PacedLatency& latency) {
  JsonObject late;
  late.add("p50", latency.late_p50_us).add("p99", latency.late_p99_us);
  JsonObject all;
  all.add("robot", bundle.contract.robot).add("bundle", bundle.identity);
  all.add("backend", backend.identity()).add("why", why);
  all.add("observation_size", bundle.contract.observation_size).add("action_size", bundle.contract.action_size);
  all.add("state_size", bundle.contract.state_size).add("model_bytes", bundle.model.size());
  all.add("period_s", kPeriodS).add("runs", latency.runs).add("failed", latency.failed);
  all.raw("inference_us", percentiles(latency).str()).add("rehearsal_us", latency.rehearsal_p50_us);
  all.raw("wake_late_us", late.str());
  all.add("allocations_per_run", latency.allocations_per_run).add("page_faults", latency.page_faults);
  all.add("not_permitted", latency.refused);
  return all.str();
}

}  // namespace

int run_bench(const Options& options) {
  const auto bundle = read_bundle(options.bundle, options.signed_by);
  std::string why, refused;
  const auto backend = make_backend(*bundle, options.backend, why);
  lock_memory(refused);
  const AwakeCpus awake;
  Pace pace;
  pace.period_s = kPeriodS;
  pace.runs = static_cast<int>(std::lround((options.seconds > 0 ? options.seconds : kDefaultSeconds) / kPeriodS));
  pace.fifo = options.fifo_policy;
  pace.cpu = options.cpu_policy;
  pace.rehearse = options.rehearse;
  auto latency = measure_paced(*backend, bundle->golden.observation, pace);
  if (!refused.empty()) latency.refused = refused + (latency.refused.empty() ? "" : "; " + latency.refused);
  const auto text = report(*bundle, *backend, why, latency);
  std::puts(text.c_str());
  if (!options.report.empty()) write_whole(options.report, text + "\n");
  return static_cast<int>(latency.failed ? ExitCode::kFault : ExitCode::kDone);
}

}  // namespace robot_rl
