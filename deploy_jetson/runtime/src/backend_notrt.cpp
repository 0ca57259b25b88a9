// Replaces backend_trt.cpp if TensorRT was not found at build time.
#include "backend.h"

namespace robot_rl {

bool has_tensorrt() { return false; }

std::unique_ptr<Backend> make_tensorrt(const Contract&, std::span<const std::byte>, const BackendOptions&) {
  throw UserError("--backend=tensorrt: this program was built without it; build it where NvInfer.h is "
                  "installed (JetPack has it), with -DROBOT_RL_TENSORRT=ON, or take 'onnxruntime'");
}

}  // namespace robot_rl
