// Replacements for the parts that this build leaves out: a definition elsewhere overrides each function here.
#include "backend.h"
#include "bundle.h"
#include "options.h"
#include "robot_end.h"
#include "rt.h"
#include "safety.h"
#include "transport_parts.h"

#define ROBOT_RL_STAND_IN __attribute__((weak))

namespace robot_rl {

namespace {

[[noreturn]] void unavailable(const char* what) {
  throw UserError(std::string(what) + " is not part of this build of robot-rl-infer");
}

[[noreturn]] void without_dds(const std::string& address) {
  throw UserError(
      "transport=" + address +
      ": this build supports only udp and shm; install cyclonedds-dev and cyclonedds-tools and build again for dds");
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
  throw UserError("--backend=tensorrt: this program was built without it; build it where NvInfer.h is "
                  "installed (JetPack has it), with -DROBOT_RL_TENSORRT=ON, or take 'onnxruntime'");
}
ROBOT_RL_STAND_IN bool has_tensorrt() { return false; }
ROBOT_RL_STAND_IN std::unique_ptr<Transport> make_transport(const std::string&, const std::string&, std::uint64_t) {
  unavailable("a transport");
}
ROBOT_RL_STAND_IN bool has_dds() { return false; }
ROBOT_RL_STAND_IN std::unique_ptr<Transport> make_dds_transport(const std::string& address, const std::string&,
                                                                std::uint64_t) {
  without_dds(address);
}
ROBOT_RL_STAND_IN std::unique_ptr<RobotEnd> make_dds_robot_end(const std::string& address, const RobotDescription&) {
  without_dds(address);
}

}  // namespace robot_rl
