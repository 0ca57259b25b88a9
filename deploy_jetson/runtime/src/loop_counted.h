// A backend that counts what its library allocates, apart from what this program does.
#pragma once

#include "loop.h"
#include "rt.h"

namespace robot_rl {

class Loop::Counted final : public Backend {
 public:
  explicit Counted(Backend& inner) : Backend(inner.contract()), inner_(&inner) {}
  void warm(int runs) override { inner_->warm(runs); }
  /// Run this network from here on; of the same contract.
  void replace(Backend& inner) noexcept { inner_ = &inner; }
  bool run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
           std::span<float> joint_target, std::span<float> state_out) noexcept override {
    const std::uint64_t before = allocations();
    const bool ok = inner_->run(observation, state, action, joint_target, state_out);
    allocated_ += allocations() - before;
    return ok;
  }
  void rehearse() noexcept override {
    const std::uint64_t before = allocations();
    inner_->rehearse();
    allocated_ += allocations() - before;
  }
  std::string identity() const override { return inner_->identity(); }
  std::uint64_t allocated() const { return allocated_; }

 private:
  Backend* inner_;
  std::uint64_t allocated_ = 0;
};

}  // namespace robot_rl
