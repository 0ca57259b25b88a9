// The choice of a backend for a bundle: each candidate is loaded, warmed, checked against the golden sequence, tried on
// extreme observations and, if there are several, timed at a fixed rate.
#include <cstdio>

#include "bundle.h"
#include "paced.h"
#include "probe.h"

namespace robot_rl {

namespace {

// Below this an "fp16" result has more bits than fp16: the library ran in fp32 without reporting it.
constexpr double kTooExactForHalf = 5e-6;
// A lower precision must pay off: p99.9 at least a fifth shorter.
constexpr double kWorthHalf = 0.8;

struct Candidate {
  std::string name, precision;
  std::unique_ptr<Backend> backend;
  ReplayReport replay;
  PacedLatency latency;
  std::string refused;  // why it cannot be used; empty: it can
  std::string label() const { return name + " " + precision; }
  bool half() const { return precision == "fp16"; }
};

void check_options(const BackendOptions& options, const Contract& contract) {
  if (options.name != "auto" && options.name != "onnxruntime" && options.name != "tensorrt") {
    throw UserError("--backend=" + options.name + ": must be auto, onnxruntime or tensorrt");
  }
  if (contract.precision) return check_precision(contract, options);
  if (options.precision != "fp32" && options.precision != "fp16" && options.precision != "auto") {
    throw UserError("--precision=" + options.precision + ": must be fp32, fp16 or auto");
  }
  if (options.name == "auto" && options.precision == "fp16" && !has_tensorrt()) {
    throw UserError(
        "--precision=fp16: only TensorRT supports it, and this program was built without TensorRT; use fp32");
  }
}

std::vector<Candidate> candidates(const BackendOptions& options, const Contract& contract) {
  std::vector<Candidate> all;
  const auto add = [&all](const char* name, const std::string& precision) {
    all.emplace_back();
    all.back().name = name;
    all.back().precision = precision;
  };
  const bool any = options.name == "auto", both = options.precision == "auto";
  if (contract.precision) {
    if (any || options.name == "onnxruntime") add("onnxruntime", contract.mode());
    if (options.name == "tensorrt" || (any && has_tensorrt())) add("tensorrt", contract.mode());
    return all;
  }
  if (options.name == "onnxruntime") add("onnxruntime", both ? "fp32" : options.precision);
  if (any && options.precision != "fp16") add("onnxruntime", "fp32");
  if (options.name == "tensorrt" || (any && (has_tensorrt() || options.precision == "fp16"))) {
    if (options.precision != "fp16") add("tensorrt", "fp32");
    if (options.precision != "fp32") add("tensorrt", "fp16");
  }
  return all;
}

void open(const Bundle& bundle, BackendOptions options, Candidate& candidate) {
  options.name = candidate.name;
  options.precision = candidate.precision;
  candidate.backend = candidate.name == "tensorrt" ? make_tensorrt(bundle.contract, bundle.model, options)
                                                   : make_onnxruntime(bundle.contract, bundle.model, options);
  candidate.replay = replay_golden(bundle, *candidate.backend, action_tolerance(options));
  if (candidate.half() && candidate.replay.action_error < kTooExactForHalf) {
    char error[32];
    std::snprintf(error, sizeof error, "%.1e", candidate.replay.action_error);
    throw ContractError("golden replay: its error of " + std::string(error) +
                        " is that of fp32, so it was not run in fp16");
  }
  // fp16 holds nothing above 65504, and rounds a clip to its 11 bits.
  probe_network(bundle.contract, *candidate.backend,
                candidate.half() ? ProbeLimits{1.0, kHalfTolerance, kHalfTolerance} : ProbeLimits{});
  candidate.backend->warm();
}

std::string figures(const Candidate& candidate, bool timed, const Contract& contract) {
  if (!candidate.refused.empty()) return candidate.label() + ": refused, " + candidate.refused;
  char text[160], bound[32] = "";
  if (contract.precision) std::snprintf(bound, sizeof bound, " of %.1e", contract.precision->action_bound);
  if (timed) {
    std::snprintf(text, sizeof text, ": p99.9 %.0f us (p50 %.0f us), golden error %.1e", candidate.latency.p999_us,
                  candidate.latency.p50_us, candidate.replay.action_error);
  } else {
    std::snprintf(text, sizeof text, ": golden error %.1e", candidate.replay.action_error);
  }
  return candidate.label() + text + bound;
}

bool better(const Candidate& one, const Candidate& other) {
  if (one.half() == other.half()) return one.latency.p999_us < other.latency.p999_us;
  if (one.half()) return one.latency.p999_us < kWorthHalf * other.latency.p999_us;
  return other.latency.p999_us >= kWorthHalf * one.latency.p999_us;
}

std::unique_ptr<Backend> take(Candidate& candidate, const BackendOptions& options, BackendOptions* chosen) {
  if (chosen) {
    *chosen = options;
    chosen->name = candidate.name;
    chosen->precision = candidate.precision;
  }
  return std::move(candidate.backend);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const Bundle& bundle, const BackendOptions& options, std::string& why,
                                      BackendOptions* chosen) {
  check_options(options, bundle.contract);
  auto all = candidates(options, bundle.contract);
  if (all.size() == 1) {
    open(bundle, options, all[0]);
    const bool only = options.name == "auto" && !has_tensorrt();
    why = all[0].backend->identity() +
          (only ? ": the only one that this program was built with; " : ": as requested; ") +
          figures(all[0], false, bundle.contract);
    return take(all[0], options, chosen);
  }
  Candidate* best = nullptr;
  for (auto& candidate : all) {
    try {
      open(bundle, options, candidate);
      candidate.latency = measure_paced(*candidate.backend, bundle.golden.observation, Pace{});
      if (candidate.latency.failed) candidate.refused = std::to_string(candidate.latency.failed) + " runs failed";
    } catch (const std::exception& error) {
      candidate.refused = error.what();
    }
    if (!candidate.refused.empty()) candidate.backend.reset();
    if (candidate.refused.empty() && (!best || better(candidate, *best))) best = &candidate;
  }
  std::string seen;
  for (const auto& candidate : all) seen += (seen.empty() ? "" : "; ") + figures(candidate, true, bundle.contract);
  if (!best) throw ContractError("no backend passes: " + seen);
  why = best->backend->identity() + ": the shortest p99.9 of those that pass the golden replay; " + seen;
  return take(*best, options, chosen);
}

}  // namespace robot_rl
