#include "data/tokenizer/special_names.h"

#include <charconv>

namespace megatron {

std::string sentinel_name(std::int64_t i) {
  return fmt::format("<extra_id_{}>", i);
}

SpecialIds find_special_ids(const FindSpecial& find) {
  const auto first_of = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (const std::int32_t id = find(name); id >= 0) return id;
    }
    return -1;
  };
  SpecialIds special;
  special.cls = first_of({"[CLS]", "<cls>"});
  special.sep = first_of({"[SEP]", "<sep>"});
  special.mask = first_of({"[MASK]", "<mask>"});
  special.pad = first_of({"<pad>", "[PAD]"});
  special.bos = first_of({"<s>", "<bos>", "[BOS]"});
  special.eos = first_of({"</s>", "<eos>", "[EOS]"});
  if (special.bos < 0) special.bos = special.pad;
  const auto find_sentinel = [&](std::int64_t i) {  // mT5's model has them with a space in front
    const std::int32_t id = find(sentinel_name(i));
    return id >= 0 ? id : find(std::string(kSpaceMark) + sentinel_name(i));
  };
  special.first_sentinel = find_sentinel(0);
  if (special.first_sentinel < 0) return special;
  special.sentinels = 1;
  const auto is_next = [&](std::int32_t step) {
    const std::int32_t next = special.first_sentinel + special.sentinels * step;
    return next >= 0 && find_sentinel(special.sentinels) == next;  // -1: there is none
  };
  special.sentinel_step = is_next(-1) ? -1 : 1;
  while (is_next(special.sentinel_step)) ++special.sentinels;
  return special;
}

std::vector<std::string> missing_sentinels(const SpecialIds& special, std::int64_t extra_ids, const NamedText& file) {
  std::vector<std::string> names;
  if (special.sentinels >= extra_ids) return names;
  if (special.sentinels > 0) {
    file.fail_at(0, "has {} sentinels (<extra_id_0> ...) already, and --extra-ids asks for {}; leave --extra-ids out",
                 special.sentinels, extra_ids);
  }
  for (std::int64_t i = extra_ids; i-- > 0;) names.push_back(sentinel_name(i));
  return names;
}

void clear_special(const SpecialIds& special, std::vector<std::uint8_t>& continues) {
  for (const std::int32_t id : {special.cls, special.sep, special.mask, special.pad, special.bos, special.eos}) {
    if (id >= 0) continues[static_cast<std::size_t>(id)] = 0;
  }
  for (std::int32_t i = 0; i < special.sentinels; ++i) {
    continues[static_cast<std::size_t>(special.first_sentinel + i * special.sentinel_step)] = 0;
  }
}

std::string spaces_written(std::string_view piece) {
  std::string text;
  for (std::size_t mark; (mark = piece.find(kSpaceMark)) != std::string_view::npos;) {
    text.append(piece.substr(0, mark)).append(1, ' ');
    piece.remove_prefix(mark + kSpaceMark.size());
  }
  return text.append(piece);
}

std::optional<char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [stop, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  return error == std::errc() && stop == piece.data() + 5 ? std::optional(static_cast<char>(byte)) : std::nullopt;
}

std::string joined(std::span<const std::int32_t> ids, bool drop_space, const Tokenizer& tokenizer) {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string next = tokenizer.decode_next(id);
    text.append(next, drop_space && next.starts_with(' ') ? 1 : 0);
    drop_space = drop_space && id == tokenizer.eod_id();
  }
  return text;
}

}  // namespace megatron
