// --check: everything that a start checks, and nothing that moves.
#include <cstdio>

#include "bundle.h"
#include "json.h"
#include "options.h"
#include "report.h"

namespace robot_rl {
namespace {

std::string report_of(const Bundle& bundle, const Backend& backend, const ReplayReport& replay) {
  const auto& contract = bundle.contract;
  JsonObject training, errors, report;
  training.add("run_id", contract.training.run_id).add("task", contract.training.task);
  training.add("git_commit", contract.training.git_commit).add("iteration", contract.training.iteration);
  errors.add("steps", replay.steps).add("resets", replay.resets).add("observation_error", replay.observation_error);
  errors.add("action_error", replay.action_error).add("joint_target_error", replay.joint_target_error);
  report.add("robot", contract.robot).add("digest", bundle.identity).add("model_bytes", bundle.model.size());
  report.add("backend", backend.identity()).add("observation_size", contract.observation_size);
  if (contract.precision) {
    JsonObject precision;
    precision.add("mode", contract.precision->mode).add("action_bound", contract.precision->action_bound);
    precision.add("layers", contract.precision->layers.size()).add("rounded", contract.precision->rounded());
    report.raw("precision", precision.str());
  }
  report.add("joints", contract.joints.size()).raw("training", training.str()).raw("replay", errors.str());
  std::vector<std::string> lines;
  for (const auto& line : bundle.certificate) lines.push_back(json_text(line));
  if (!lines.empty()) report.raw("certificate", json_array(lines));
  return report.str();
}

}  // namespace

int run_check(const Options& options) {
  const auto bundle = read_bundle(options.bundle, options.signed_by);
  std::string why;
  BackendOptions chosen;
  const auto backend = make_backend(*bundle, options.backend, why, &chosen);
  const auto replay = replay_golden(*bundle, *backend, action_tolerance(chosen));
  const auto& contract = bundle->contract;
  std::printf("%s: %s, iteration %lld of %s\n", bundle->path.c_str(), contract.robot.c_str(),
              contract.training.iteration, contract.training.run_id.c_str());
  std::printf("  digest %s%s\n", bundle->identity.c_str(), options.signed_by.empty() ? "" : ", signed");
  std::printf("  %zu joints, %d observations, %d actions every %g s, %d remembered\n", contract.joints.size(),
              contract.observation_size, contract.action_size, contract.control_period_s, contract.state_size);
  std::printf("  backend %s\n", (why.empty() ? backend->identity() : why).c_str());
  if (contract.precision) {
    std::printf("  precision %s, replayed to %.1e\n", contract.precision->summary().c_str(), replay.action_error);
  }
  std::printf("  golden replay of %d steps, %d resets: observation %.1e, action %.1e, joint target %.1e\n",
              replay.steps, replay.resets, replay.observation_error, replay.action_error, replay.joint_target_error);
  for (const auto& line : bundle->certificate) std::printf("  certificate: %s\n", line.c_str());
  std::puts("  the bundle may move a robot");
  if (!options.report.empty()) write_whole(options.report, report_of(*bundle, *backend, replay) + "\n");
  return 0;
}

}  // namespace robot_rl
