#include "radio.h"

#include <algorithm>
#include <cmath>

#include "address.h"
#include "crc32.h"
#include "error.h"
#include "rt.h"
#include "transport_parts.h"

namespace robot_rl {
namespace {

constexpr int kMaxDrain = 64;                        // datagrams read at one state
constexpr std::int64_t kForgotten = 500'000'000;     // [ns] of silence after which a robot's numbers may begin again

/// The contract whose observations are the terms of the messages, in their order.
Contract told_contract(const Contract& contract) {
  Contract told = contract;
  told.observations.clear();
  for (const auto& message : contract.messages) {
    told.observations.insert(told.observations.end(), message.terms.begin(), message.terms.end());
  }
  return told;
}

/// A number that two robots share if they mean the same messages.
std::uint32_t layout_of_messages(const Contract& contract) {
  std::string text;
  for (const auto& name : contract.team) text += name + ";";
  for (const auto& message : contract.messages) text += message.name + ":" + std::to_string(message.width) + ";";
  return crc32(std::as_bytes(std::span(text)));
}

std::size_t place_of(const Contract& contract, const std::string& name) {
  const auto found = std::find(contract.team.begin(), contract.team.end(), name);
  if (found != contract.team.end()) return static_cast<std::size_t>(found - contract.team.begin());
  std::string all;
  for (const auto& other : contract.team) all += (all.empty() ? "" : ", ") + other;
  throw UserError("--name=" + name + ": must be one of the robots of the team: " + all);
}

}  // namespace

Radio::Radio(std::unique_ptr<Transport> inner, const Contract& contract, const RadioOptions& options)
    : inner_(std::move(inner)),
      contract_(&contract),
      told_(told_contract(contract)),
      observer_(told_),
      stations_(contract.team.size()),
      own_(place_of(contract, options.name)),
      layout_(layout_of_messages(contract)),
      period_ns_(static_cast<std::int64_t>(contract.control_period_s * 1e9)),
      frame_(kMaxFrame) {
  for (const auto& message : contract.messages) width_ += message.width;
  for (auto& station : stations_) station.values.assign(static_cast<std::size_t>(width_), 0.0f);
  if (!options.hear.empty()) {
    ear_ = std::make_unique<DatagramSocket>(parse_address(options.hear, "--hear"), "--hear");
  }
  for (const auto& address : options.tell) {
    mouths_.push_back(std::make_unique<DatagramSender>(parse_address(address, "--tell"), "--tell"));
  }
  out_.sender = static_cast<std::uint16_t>(own_);
  out_.count = width_;
  out_.sequence = static_cast<std::uint64_t>(now_ns());
}

RobotDescription Radio::connect(const Contract& contract, double timeout_s) {
  return inner_->connect(contract, timeout_s);
}

bool Radio::take_state(LowState& state) noexcept {
  if (!inner_->take_state(state)) return false;
  const auto now = now_ns();
  listen(now);
  complete(state, now);
  if (state.receive_time_ns >= next_ns_) {
    // Once in a control period, in step with the states.
    const bool late = next_ns_ == 0 || state.receive_time_ns > next_ns_ + period_ns_;
    next_ns_ = (late ? state.receive_time_ns : next_ns_) + period_ns_;
    tell(state);
  }
  return true;
}

void Radio::listen(std::int64_t now) noexcept {
  for (int taken = 0; ear_ && taken < kMaxDrain; ++taken) {
    const auto size = ear_->receive(frame_);
    if (size == 0) return;
    take_tell(std::span(frame_).first(size), now);
  }
}

void Radio::take_tell(std::span<const std::byte> data, std::int64_t now) noexcept {
  Frame frame;
  if (open_frame(data, frame) != Opened::kGood) return count(damaged_);
  if (frame.kind != Message::kTell) return count(foreign_);
  if (!read_tell(frame, in_)) return count(damaged_);
  if (in_.sender >= stations_.size() || in_.sender == own_) return count(foreign_);
  if (in_.count != width_ || frame.layout != layout_) {
    odd_count_.store(in_.count, std::memory_order_relaxed);
    odd_sender_.store(in_.sender, std::memory_order_release);
    return count(foreign_);
  }
  if (!std::all_of(in_.values, in_.values + in_.count, [](float value) { return std::isfinite(value); })) {
    return count(damaged_);
  }
  auto& station = stations_[in_.sender];
  if (station.heard_ns != 0 && in_.sequence <= station.sequence && now - station.heard_ns < kForgotten) {
    return count(old_);
  }
  station.heard_ns = now;
  station.sequence = in_.sequence;
  std::copy_n(in_.values, in_.count, station.values.begin());
  count(heard_);
}

void Radio::complete(LowState& state, std::int64_t now) const noexcept {
  std::size_t at = 0;
  for (const auto& message : contract_->messages) {
    const auto width = static_cast<std::size_t>(message.width);
    for (const auto& heard : message.heard) {
      const auto& station = stations_[(own_ + 1 + static_cast<std::size_t>(heard.sender)) % stations_.size()];
      const double age_s = static_cast<double>(now - station.heard_ns) * 1e-9;
      const bool there = station.heard_ns != 0 && age_s <= message.late_s;
      float* values = state.measured + heard.place;
      for (std::size_t k = 0; k < width; ++k) values[k] = there ? station.values[at + k] : 0.0f;
      values[width] = there ? 1.0f : 0.0f;
    }
    at += width;
  }
  state.measured_count = contract_->measured_size;
}

void Radio::tell(const LowState& state) noexcept {
  if (mouths_.empty()) return;
  observer_.observe(state, {}, {out_.values, static_cast<std::size_t>(width_)});
  ++out_.sequence;
  const auto size = write_tell(out_, layout_, frame_);
  for (const auto& mouth : mouths_) {
    const bool sent = size > 0 && mouth->send(std::span(frame_).first(size));
    count(sent ? told_count_ : send_failed_);
  }
}

RadioCounters Radio::radio_counters() const noexcept {
  constexpr auto kOrder = std::memory_order_relaxed;
  return {told_count_.load(kOrder), heard_.load(kOrder),   old_.load(kOrder),
          damaged_.load(kOrder),    foreign_.load(kOrder), send_failed_.load(kOrder)};
}

std::string Radio::odd() const {
  const int sender = odd_sender_.load(std::memory_order_acquire);
  if (sender < 0) return {};
  const int told = odd_count_.load(std::memory_order_relaxed);
  const std::string head = "the messages of " + contract_->team[static_cast<std::size_t>(sender)];
  if (told == width_) return head + " are not those of this bundle's team; it is not heard";
  return head + " have " + std::to_string(told) + " values, this bundle declares " + std::to_string(width_) +
         "; it is not heard";
}

}  // namespace robot_rl
