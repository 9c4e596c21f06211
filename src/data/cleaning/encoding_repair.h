// Repairs of encodings: mojibake (the rule is in mojibake.h), HTML entities, quotation marks, ligatures, widths, line
// ends, control characters, form C. Used by the step `text` of megatron_clean. Texts that need nothing are only looked
// at; time is linear in their length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megatron {

/// In the order in which they are applied.
enum class Repair : std::uint8_t {
  html_entities,
  mojibake,
  spaces,
  lost_bytes,
  mixed_encodings,
  c1_controls,
  ligatures,
  widths,
  quotes,
  line_ends,
  surrogates,
  terminal_escapes,
  controls,
  composition,
};
inline constexpr std::size_t kRepairs = 14;

struct RepairRow {
  Repair repair;
  std::string_view name;
  bool on;  ///< default
  std::string_view help;
};
/// One row for each repair, in their order.
std::span<const RepairRow, kRepairs> repair_rows();

class EncodingRepair {
 public:
  using Choice = std::array<bool, kRepairs>;
  static Choice defaults();

  explicit EncodingRepair(const Choice& on = defaults());

  /// The repaired text, valid UTF-8: `text` itself if it needs nothing, else a view of `buffer`. Bytes that are not
  /// UTF-8 become U+FFFD. Every line is repaired by itself; entities stay from the first line on that has a '<'.
  std::string_view repaired(std::string_view text, std::string& buffer);

  /// Lines that each repair has changed so far. Those of mojibake (spaces to mixed_encodings) count as mojibake.
  const std::array<std::uint64_t, kRepairs>& changed_lines() const { return changed_; }
  /// Characters that repairs of lines have looked at so far.
  std::uint64_t work() const { return work_; }

 private:
  bool needs_nothing(std::u32string_view line) const;
  void repair_line(std::u32string line, bool entities, std::string& out);
  std::u32string one_round(std::u32string line, bool entities, std::array<bool, kRepairs>& changes);

  Choice on_;
  std::array<std::uint64_t, kRepairs> changed_{};
  std::uint64_t work_ = 0;
};

}  // namespace megatron
