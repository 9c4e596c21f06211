// Role: what a parameter is for, as the layer that declares it says. Whatever treats kinds of parameters differently
// follows from it and from the number of dimensions, never from a name.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace megatron {

enum class Role {
  matrix,     ///< a hidden matrix: of attention, an MLP, an expert, a dense layer in front of a last one
  embedding,  ///< a table whose rows are looked up: tokens, positions, types, biases by distance; a tied head too
  head,       ///< the output layer's matrix, where it is not the token table
  vector,     ///< a bias, or other numbers in one dimension
  norm,       ///< weight or bias of a norm
  router,     ///< part of a router, which chooses or weighs experts: a matrix with few rows, or a choice bias
  task_head,  ///< the last layer of a classification: weight and bias
};

struct RoleRow {
  Role role;
  std::string_view name;
};

inline constexpr std::array kRoles{
    RoleRow{Role::matrix, "matrix"},       RoleRow{Role::embedding, "embedding"}, RoleRow{Role::head, "head"},
    RoleRow{Role::vector, "vector"},       RoleRow{Role::norm, "norm"},           RoleRow{Role::router, "router"},
    RoleRow{Role::task_head, "task_head"},
};

/// The rows are in the order of the enum.
constexpr bool roles_in_order() {
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    if (kRoles[i].role != static_cast<Role>(i)) return false;
  }
  return true;
}
static_assert(roles_in_order());

constexpr std::string_view name_of(Role role) {
  return kRoles[static_cast<std::size_t>(role)].name;
}

}  // namespace megatron
