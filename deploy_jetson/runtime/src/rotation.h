// Rotations in double precision, for the checks of the IMU.
#pragma once

#include <array>
#include <cmath>

namespace robot_rl {

using Vector = std::array<double, 3>;
using Quaternion = std::array<double, 4>;  // w, x, y, z: of the base in the world

inline Quaternion times(const Quaternion& a, const Quaternion& b) {
  return {a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3], a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
          a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1], a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0]};
}

inline Quaternion inverse(const Quaternion& q) { return {q[0], -q[1], -q[2], -q[3]}; }

/// Of length 1; the identity for one that is nearly zero.
inline Quaternion unit(const Quaternion& q) {
  const double norm = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  if (!(norm > 1e-6)) return {1, 0, 0, 0};
  return {q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm};
}

inline double length(const Vector& v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

/// The turn from `a` to `b` [rad], about the base's axes.
inline Vector turn_between(const Quaternion& a, const Quaternion& b) {
  const Quaternion d = times(inverse(a), b);
  const double sine = std::sqrt(d[1] * d[1] + d[2] * d[2] + d[3] * d[3]);
  const double angle = 2 * std::atan2(sine, std::abs(d[0]));
  const double scale = (sine > 1e-12 ? angle / sine : 2.0) * (d[0] < 0 ? -1 : 1);
  return {scale * d[1], scale * d[2], scale * d[3]};
}

/// `q` turned by a small vector [rad] about the base's axes.
inline Quaternion turned_by(const Quaternion& q, const Vector& v) {
  return unit(times(q, {1, v[0] / 2, v[1] / 2, v[2] / 2}));
}

/// The vertical in the base's frame.
inline Vector up_of(const Quaternion& q) {
  return {2 * (q[1] * q[3] - q[0] * q[2]), 2 * (q[2] * q[3] + q[0] * q[1]), 1 - 2 * (q[1] * q[1] + q[2] * q[2])};
}

}  // namespace robot_rl
