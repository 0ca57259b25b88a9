// A policy bundle on disk: policy.onnx, contract.json, golden.npz, SHA256SUMS; certificate.json if it is certified, and
// SHA256SUMS.sig if it is signed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend.h"
#include "contract.h"

namespace robot_rl {

/// A recorded sequence, see robot_rl_deploy.golden; arrays are row-major (steps, size).
struct Golden {
  int steps = 0;
  std::map<std::string, std::vector<float>> signals;
  std::vector<std::uint8_t> reset;
  std::vector<float> observation, action, joint_target;
  std::vector<float> action_bound;  // (steps,) how far an action may be off, with a precision; empty in fp32
};

struct Bundle {
  std::filesystem::path path;
  std::string identity;  // SHA-256 of SHA256SUMS, hexadecimal: names the bundle in logs
  Contract contract;
  std::string contract_text;  // of contract.json
  std::vector<std::byte> model;
  std::vector<std::string> certificate;  // lines of certificate.json for people; empty without one
  Golden golden;
};

/// Read and check a bundle: no other files, no links, correct hashes, valid contract and golden sequence, and a
/// network without foreign parts. With `signed_by` (a file with an Ed25519 public key, PEM) SHA256SUMS.sig must be a
/// signature by that key. Throws ContractError; UserError if the key or libcrypto is not available.
std::unique_ptr<Bundle> read_bundle(const std::filesystem::path& path, const std::filesystem::path& signed_by = {});

struct ReplayReport {
  int steps = 0, resets = 0;
  double observation_error = 0, action_error = 0, joint_target_error = 0;
};

/// Play the golden sequence through observer and network. Observations may differ by 1e-6 (relative above 1), actions
/// and targets by `action_tolerance`, or else by that of each step. Throws ContractError that names term or joint,
/// component and step.
ReplayReport replay_golden(const Bundle& bundle, Backend& backend, std::optional<double> action_tolerance = {});

/// How far actions in fp16 may be off, for `replay_golden`. fp16 has 11 bits, so a network of a few layers has an error
/// of some thousandths; above this it is another policy.
inline constexpr double kHalfTolerance = 1e-2;

/// The tolerance of actions in the precision of `options`, for `replay_golden`: none for another than fp16.
inline std::optional<double> action_tolerance(const BackendOptions& options) {
  return options.precision == "fp16" ? std::optional(kHalfTolerance) : std::nullopt;
}

/// Load the backend requested in `options`, warm it, replay the golden sequence and try extreme observations. "auto"
/// measures each available one at a fixed rate and writes to `why` which it chose and why; `chosen` gets its name and
/// precision. Throws ContractError if none passes.
std::unique_ptr<Backend> make_backend(const Bundle& bundle, const BackendOptions& options, std::string& why,
                                      BackendOptions* chosen = nullptr);

}  // namespace robot_rl
