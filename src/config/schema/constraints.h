// Ways to say what one value of the schema must satisfy: the words that the rows of schema_*.cpp are written in.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "config/schema/schema.h"

namespace megatron::constraints {

inline Constraint any() {
  return {};
}
inline Constraint from_to(double minimum, double maximum) {
  Constraint result;
  result.minimum = minimum;
  result.maximum = maximum;
  return result;
}
inline Constraint at_least(double minimum) {
  return from_to(minimum, std::numeric_limits<double>::infinity());
}
inline Constraint above(double minimum) {
  Constraint result = at_least(minimum);
  result.above_minimum = true;
  return result;
}
inline Constraint above_to(double minimum, double maximum) {
  Constraint result = from_to(minimum, maximum);
  result.above_minimum = true;
  return result;
}
inline Constraint below_one() {
  Constraint result = from_to(0, 1);
  result.below_maximum = true;
  return result;
}
inline Constraint in_fp32(Constraint constraint) {
  constraint.held_in = HeldIn::f32;
  return constraint;
}
inline Constraint dropout() {
  Constraint result = below_one();
  result.held_in = HeldIn::dropout_steps;
  return result;
}
inline Constraint one_of(std::vector<std::string> choices) {
  Constraint result;
  result.choices = std::move(choices);
  return result;
}
inline Constraint path() {
  Constraint result;
  result.path = true;
  return result;
}
inline Constraint noted(Constraint constraint, std::string note) {
  constraint.note = std::move(note);
  return constraint;
}

}  // namespace megatron::constraints
