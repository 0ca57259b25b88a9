// The fields of states, operator's messages, policy outputs and commands, by name and in order: one list for the log
// (cdr.h), the rings (records.cpp), the comparison of a replay and the Python module. An archive has a function for a
// number, an array of fixed size, and a list, of which the first `count` elements are used.
#pragma once

#include "policy.h"
#include "types.h"

namespace robot_rl {

void fields(auto& a, Is<LowState> auto& s, bool measured = true) {
  a.number("sequence", s.sequence);
  a.number("robot_time_ns", s.robot_time_ns);
  a.number("receive_time_ns", s.receive_time_ns);
  a.number("commander", s.commander);
  a.fixed("quat_wxyz", s.quat_wxyz);
  a.fixed("gyro", s.gyro);
  a.fixed("acc", s.acc);
  a.list("joint_pos", s.joint_pos, s.joints);
  a.list("joint_vel", s.joint_vel, s.joints);
  a.list("joint_effort", s.joint_effort, s.joints);
  a.list("temperature_c", s.temperature_c, s.joints);
  a.list("motor_fault", s.motor_fault, s.joints);
  a.list("foot_contact", s.foot_contact, s.feet);
  a.list("foot_force", s.foot_force, s.feet);
  // A log of an earlier version has the measured values of a height scan here.
  if constexpr (requires { a.former("height_scan", s.measured, s.measured_count); })
    a.former("height_scan", s.measured, s.measured_count);
  if (measured) a.list("measured", s.measured, s.measured_count);
}

void fields(auto& a, Is<OperatorInput> auto& o) {
  a.number("sequence", o.sequence);
  a.number("receive_time_ns", o.receive_time_ns);
  a.number("request", o.request);
  a.list("command", o.command, o.size);
}

void fields(auto& a, Is<PolicyOutput> auto& p) {
  a.number("step", p.step);
  a.number("state_sequence", p.state_sequence);
  a.number("state_robot_time_ns", p.state_robot_time_ns);
  a.number("state_receive_time_ns", p.state_receive_time_ns);
  a.number("begin_ns", p.begin_ns);
  a.number("observed_ns", p.observed_ns);
  a.number("done_ns", p.done_ns);
  a.number("reset", p.reset);
  a.number("ok", p.ok);
  a.list("action", p.action, p.actions);
  a.list("target", p.target, p.actions);
}

void fields(auto& a, Is<LowCommand> auto& c) {
  a.number("sequence", c.sequence);
  a.number("commander", c.commander);
  a.number("state_sequence", c.state_sequence);
  a.number("state_robot_time_ns", c.state_robot_time_ns);
  a.number("state_age_ns", c.state_age_ns);
  a.number("send_time_ns", c.send_time_ns);
  a.number("phase", c.phase);
  a.number("fault", c.fault);
  a.number("from_policy", c.from_policy);
  a.list("q", c.q, c.joints);
  a.list("dq", c.dq, c.joints);
  a.list("kp", c.kp, c.joints);
  a.list("kd", c.kd, c.joints);
  a.list("tau", c.tau, c.joints);
}

}  // namespace robot_rl
