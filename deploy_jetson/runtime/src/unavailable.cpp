// Replacements for the parts that this build leaves out: a definition elsewhere overrides each function here.
#include "backend.h"
#include "bundle.h"
#include "options.h"
#include "rt.h"
#include "safety.h"
#include "transport.h"

#define ROBOT_RL_STAND_IN __attribute__((weak))

namespace robot_rl {

namespace {

[[noreturn]] void unavailable(const char* what) {
  throw UserError(std::string(what) + " is not part of this build of robot-rl-infer");
}

}  // namespace

ROBOT_RL_STAND_IN std::uint64_t allocations() noexcept { return 0; }
ROBOT_RL_STAND_IN int run_robot(const Options&) { unavailable("running a robot"); }
ROBOT_RL_STAND_IN int run_bench(const Options&) { unavailable("--bench"); }
ROBOT_RL_STAND_IN int run_replay(const Options&) { unavailable("--replay"); }

ROBOT_RL_STAND_IN std::string describe(const Finding& finding, const Contract&) { return name_of(finding.fault); }

ROBOT_RL_STAND_IN std::unique_ptr<Backend> make_backend(const Bundle&, const BackendOptions&, std::string&,
                                                        BackendOptions*) {
  unavailable("a backend");
}
ROBOT_RL_STAND_IN std::unique_ptr<Backend> make_onnxruntime(const Contract&, std::span<const std::byte>,
                                                            const BackendOptions&) {
  unavailable("ONNX Runtime");
}
ROBOT_RL_STAND_IN std::unique_ptr<Backend> make_tensorrt(const Contract&, std::span<const std::byte>,
                                                         const BackendOptions&) {
  unavailable("TensorRT");
}
ROBOT_RL_STAND_IN bool has_tensorrt() { return false; }
ROBOT_RL_STAND_IN std::unique_ptr<Transport> make_transport(const std::string&, const std::string&, std::uint64_t) {
  unavailable("a transport");
}

}  // namespace robot_rl
