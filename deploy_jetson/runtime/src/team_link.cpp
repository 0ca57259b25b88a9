#include "team_link.h"

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
constexpr std::int64_t kRounding = 20;               // so small a part of a period is an inexact time
constexpr std::int64_t kForgotten = 500'000'000;     // [ns] of silence after which a robot's numbers may begin again

/// A copy of the contract with the terms of the messages, in their order, as its observations.
Contract contract_of_messages(const Contract& contract) {
  Contract sent = contract;
  sent.observations.clear();
  for (const auto& message : contract.messages) {
    sent.observations.insert(sent.observations.end(), message.terms.begin(), message.terms.end());
  }
  return sent;
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
  throw UserError("--team-name=" + name + ": must be one of the robots of the team: " + joined(contract.team));
}

}  // namespace

TeamLink::TeamLink(std::unique_ptr<Transport> inner, const Contract& contract, const TeamLinkOptions& options)
    : inner_(std::move(inner)),
      contract_(&contract),
      sent_contract_(contract_of_messages(contract)),
      observer_(sent_contract_),
      members_(contract.team.size()),
      own_(place_of(contract, options.name)),
      layout_(layout_of_messages(contract)),
      period_ns_(static_cast<std::int64_t>(contract.control_period_s * 1e9)),
      frame_(kMaxFrame) {
  for (const auto& message : contract.messages) width_ += message.width;
  for (auto& member : members_) member.values.assign(static_cast<std::size_t>(width_), 0.0f);
  if (!options.listen.empty()) {
    socket_ = std::make_unique<DatagramSocket>(parse_address(options.listen, "--team-listen"), "--team-listen");
  }
  for (const auto& address : options.send) {
    senders_.push_back(std::make_unique<DatagramSender>(parse_address(address, "--team-send"), "--team-send"));
  }
  out_.sender = static_cast<std::uint16_t>(own_);
  out_.count = width_;
  out_.sequence = static_cast<std::uint64_t>(now_ns());
}

RobotDescription TeamLink::connect(const Contract& contract, double timeout_s) {
  return inner_->connect(contract, timeout_s);
}

bool TeamLink::take_state(LowState& state) noexcept {
  if (!inner_->take_state(state)) return false;
  const auto now = now_ns();
  receive(now);
  complete(state, now);
  // Once in a control period of the robot's clock, in step with the states; begun again where the clock jumps.
  const std::int64_t at = state.robot_time_ns;
  const bool jumps = at > next_ns_ + period_ns_ || at < next_ns_ - 2 * period_ns_;
  if (jumps || at >= next_ns_ - period_ns_ / kRounding) {
    next_ns_ = (jumps ? at : next_ns_) + period_ns_;
    broadcast(state);
  }
  return true;
}

void TeamLink::receive(std::int64_t now) noexcept {
  for (int taken = 0; socket_ && taken < kMaxDrain; ++taken) {
    const auto size = socket_->receive(frame_);
    if (size == 0) return;
    take_message(std::span(frame_).first(size), now);
  }
}

void TeamLink::take_message(std::span<const std::byte> data, std::int64_t now) noexcept {
  Frame frame;
  if (open_frame(data, frame) != Opened::kGood) return count(damaged_);
  if (frame.kind != Message::kTeamMessage) return count(foreign_);
  if (!read_team_message(frame, in_)) return count(damaged_);
  if (in_.sender >= members_.size() || in_.sender == own_) return count(foreign_);
  if (in_.count != width_ || frame.layout != layout_) {
    mismatched_count_.store(in_.count, std::memory_order_relaxed);
    mismatched_sender_.store(in_.sender, std::memory_order_release);
    return count(foreign_);
  }
  if (!std::all_of(in_.values, in_.values + in_.count, [](float value) { return std::isfinite(value); })) {
    return count(damaged_);
  }
  auto& member = members_[in_.sender];
  if (member.received_ns != 0 && in_.sequence <= member.sequence && now - member.received_ns < kForgotten) {
    return count(old_);
  }
  member.received_ns = now;
  member.sequence = in_.sequence;
  std::copy_n(in_.values, in_.count, member.values.begin());
  count(received_);
}

void TeamLink::complete(LowState& state, std::int64_t now) const noexcept {
  std::size_t at = 0;
  for (const auto& message : contract_->messages) {
    const auto width = static_cast<std::size_t>(message.width);
    for (const auto& received : message.received) {
      const auto& member = members_[(own_ + 1 + static_cast<std::size_t>(received.sender)) % members_.size()];
      const double age_s = static_cast<double>(now - member.received_ns) * 1e-9;
      const bool there = member.received_ns != 0 && age_s <= message.max_age_s;
      float* values = state.measured + received.place;
      for (std::size_t k = 0; k < width; ++k) values[k] = there ? member.values[at + k] : 0.0f;
      values[width] = there ? 1.0f : 0.0f;
    }
    at += width;
  }
  state.measured_count = contract_->measured_size;
}

void TeamLink::broadcast(const LowState& state) noexcept {
  if (senders_.empty()) return;
  observer_.observe(state, {}, {out_.values, static_cast<std::size_t>(width_)});
  ++out_.sequence;
  const auto size = write_team_message(out_, layout_, frame_);
  for (const auto& sender : senders_) {
    const bool sent = size > 0 && sender->send(std::span(frame_).first(size));
    count(sent ? sent_ : send_failed_);
  }
}

TeamLinkCounters TeamLink::team_counters() const noexcept {
  constexpr auto kOrder = std::memory_order_relaxed;
  return {sent_.load(kOrder), received_.load(kOrder),   old_.load(kOrder),
          damaged_.load(kOrder),    foreign_.load(kOrder), send_failed_.load(kOrder)};
}

std::string TeamLink::mismatch() const {
  const int sender = mismatched_sender_.load(std::memory_order_acquire);
  if (sender < 0) return {};
  const int count = mismatched_count_.load(std::memory_order_relaxed);
  const std::string head = "the messages of " + contract_->team[static_cast<std::size_t>(sender)];
  if (count == width_) return head + " are not those of this bundle's team; they are not used";
  return head + " have " + std::to_string(count) + " values, this bundle declares " + std::to_string(width_) +
         "; they are not used";
}

}  // namespace robot_rl
