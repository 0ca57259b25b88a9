// What runs the network: one interface for ONNX Runtime and TensorRT.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "contract.h"

namespace robot_rl {

/// Where and how a network runs.
struct BackendOptions {
  std::string name = "auto";  // "onnxruntime", "tensorrt" or "auto"
  // Of a network in fp32: "fp32", "fp16"; of TensorRT, "auto" tries both. A network with a precision of its own runs in
  // that, and this is "fp32", "auto" or its mode.
  std::string precision = "fp32";
  std::filesystem::path library;  // libonnxruntime.so; empty: ROBOT_RL_ONNXRUNTIME, then the default folders
  std::filesystem::path cache;    // folder for engines built here; empty: $XDG_CACHE_HOME/robot-rl
};

/// A network loaded for one robot. `run` allocates nothing of its own; the library itself
/// may allocate (ONNX Runtime allocates some tens of small blocks in each run).
class Backend {
 public:
  virtual ~Backend() = default;
  /// Run a few hundred times on zeros, so that the first real step takes as long as the others.
  virtual void warm(int runs = 200);
  /// Infer: observation (observation_size), state (state_size) in; action, joint target (action_size), state out.
  /// `state_out` may be the same memory as `state`. Returns false if the network failed; nothing is thrown.
  virtual bool run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
                   std::span<float> joint_target, std::span<float> state_out) noexcept = 0;
  /// Run once more on the last inputs, so that weights and processor are warm at the next `run`; the results of
  /// `run` do not change.
  virtual void rehearse() noexcept {}
  /// Library, version, device and precision in one line, for log and report.
  virtual std::string identity() const = 0;
  const Contract& contract() const { return *contract_; }

 protected:
  explicit Backend(const Contract& contract) : contract_(&contract) {}
  const Contract* contract_;
};

/// Refuse another precision than the network's own, where it has one. Throws UserError.
void check_precision(const Contract& contract, const BackendOptions& options);

/// Refuse a bundle for the precision of its network, with what would run it. Throws ContractError.
[[noreturn]] void refuse_precision(const Contract& contract, const std::string& backend, const std::string& why,
                                   const std::string& instead);

/// ONNX Runtime on the CPU, one thread, no spinning. Throws ContractError for the network, UserError for the library.
/// It runs fp32, bf16, int8 and fp8.
std::unique_ptr<Backend> make_onnxruntime(const Contract& contract, std::span<const std::byte> model,
                                          const BackendOptions& options);

/// TensorRT. It runs fp32, fp16, bf16, int8 and, from compute capability 8.9, fp8. Throws UserError if this program was
/// built without it.
std::unique_ptr<Backend> make_tensorrt(const Contract& contract, std::span<const std::byte> model,
                                       const BackendOptions& options);

/// Whether this program was built with TensorRT.
bool has_tensorrt();

}  // namespace robot_rl
