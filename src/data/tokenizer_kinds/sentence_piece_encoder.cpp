#include "data/tokenizer_kinds/sentence_piece_encoder.h"

#include <limits>
#include <queue>
#include <unordered_map>

#include "base/core/error.h"
#include "data/tokenizer/special_names.h"

namespace megatron {

namespace {

/// Bytes of the longest piece in the trie that `text` begins with; 0 if there is none.
std::size_t longest_prefix(const PieceTrie& trie, std::string_view text) {
  std::size_t longest = 0;
  trie.for_each_prefix(text, [&](std::size_t length, std::int32_t) { longest = length; });
  return longest;
}

/// A text as a model's pieces spell it: characters replaced, spaces marked.
class SpelledText {
 public:
  explicit SpelledText(const SentencePieceTables& tables) : tables_(tables), model_(tables.model) {}

  /// With `prefix`, a space in front of it. `parted`: whether last_byte() will be asked for.
  std::string_view spell(std::string_view text, bool prefix, bool parted) {
    spelled_.clear();
    origins_.clear();
    parted_ = parted;
    std::size_t at = 0;
    while (model_.remove_extra_whitespaces && at < text.size()) {
      const auto [made, bytes] = first_unit(text.substr(at));
      if (made != " ") break;
      at += bytes;
    }
    if (at == text.size()) return spelled_;
    if (prefix) append(kSpaceMark, at);
    bool after_space = model_.remove_extra_whitespaces;
    while (at < text.size()) {
      auto [made, bytes] = first_unit(text.substr(at));
      while (after_space && made.starts_with(' ')) made.remove_prefix(1);
      for (const char& c : made) append(c == ' ' ? kSpaceMark : std::string_view(&c, 1), at);
      if (!made.empty()) after_space = model_.remove_extra_whitespaces && made.ends_with(' ');
      at += bytes;
    }
    while (model_.remove_extra_whitespaces && spelled_.ends_with(kSpaceMark)) {
      spelled_.resize(spelled_.size() - kSpaceMark.size());
      if (!parted_) continue;
      at = origins_[spelled_.size()];
      origins_.resize(spelled_.size());
    }
    if (parted_) origins_.push_back(at);
    return spelled_;
  }

  /// The last byte of the text that a token at [begin, end) stands for; where that is none, the byte after it.
  std::size_t last_byte(std::size_t begin, std::size_t end) const {
    return std::max(origins_[begin] + 1, origins_[end]) - 1;
  }

 private:
  /// Replacement of the front of a text, and the bytes of that front.
  std::pair<std::string_view, std::size_t> first_unit(std::string_view text) const {
    if (const std::size_t own = longest_prefix(tables_.user_defined, text); own > 0) return {text.substr(0, own), own};
    if (const auto [made, bytes] = tables_.characters.longest(text); made) return {*made, bytes};
    const std::size_t bytes = first_code_point(text.substr(0, 4)).bytes;
    if (bytes == 0) return {"\uFFFD", 1};
    return {text.substr(0, bytes), bytes};
  }

  void append(std::string_view made, std::size_t from) {
    spelled_ += made;
    if (parted_) origins_.resize(spelled_.size(), from);
  }

  const SentencePieceTables& tables_;
  const SentencePieceModel& model_;
  bool parted_ = false;
  std::string spelled_;
  std::vector<std::size_t> origins_;  // by byte of spelled_, and of its end: where its unit begins in the text
};

/// Pieces of a text for models of type BPE: as long as two neighbours are a piece together, those that make the piece
/// of the largest score become one, the leftmost among equals.
class PieceMerger {
 public:
  explicit PieceMerger(const SentencePieceTables& tables) : tables_(tables) {}

  /// The result is overwritten by the next call.
  const std::vector<PieceEnd>& merge(std::string_view text) {
    text_ = text;
    begin();
    for (std::size_t right = 1; right < symbols_.size(); ++right) offer(right - 1, right);
    while (!queue_.empty()) {
      const Pair pair = queue_.top();
      queue_.pop();
      Symbol &left = symbols_[pair.left], &right = symbols_[pair.right];
      if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != pair.bytes) continue;
      left.bytes = pair.bytes;
      right.bytes = 0;
      left.next = right.next;
      if (left.next < symbols_.size()) symbols_[left.next].previous = pair.left;
      if (left.previous < symbols_.size()) offer(left.previous, pair.left);
      if (left.next < symbols_.size()) offer(pair.left, left.next);
    }
    for (std::size_t i = 0; i < symbols_.size(); i = symbols_[i].next) {
      append(symbols_[i].begin, symbols_[i].bytes);
    }
    return pieces_;
  }

 private:
  struct Symbol {
    std::size_t begin, bytes, previous, next;
    bool whole;  // user-defined: it merges with no other
  };
  struct Pair {
    float score;
    std::size_t left, right, bytes;
    bool operator<(const Pair& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  void begin() {
    pieces_.clear();
    symbols_.clear();
    splits_.clear();
    for (std::size_t at = 0; at < text_.size(); at += symbols_.back().bytes) {
      const std::size_t own = longest_prefix(tables_.user_defined, text_.substr(at)), count = symbols_.size();
      symbols_.push_back({at, own > 0 ? own : character_bytes(text_.substr(at)), count - 1, count + 1, own > 0});
    }
  }

  void offer(std::size_t left, std::size_t right) {
    const Symbol &a = symbols_[left], &b = symbols_[right];
    if (a.whole || b.whole) return;
    const std::string_view both = text_.substr(a.begin, a.bytes + b.bytes);
    const TokenIndex::Entry* const found = tables_.ids.find(both);
    if (found == nullptr) return;
    const SentencePieceModel::Piece& piece = tables_.piece(found->id);
    queue_.push({piece.score, left, right, both.size()});
    if (piece.type == PieceType::unused) splits_[both] = a.bytes;
  }

  /// Texts have no unused pieces: these are taken apart again.
  void append(std::size_t begin, std::size_t bytes) {
    const std::string_view text = text_.substr(begin, bytes);
    if (const auto split = splits_.find(text); split != splits_.end()) {
      append(begin, split->second);
      return append(begin + split->second, bytes - split->second);
    }
    const TokenIndex::Entry* const found = tables_.ids.find(text);
    const bool known = found != nullptr && tables_.piece(found->id).type != PieceType::unused;
    pieces_.push_back({begin + bytes, known ? found->id : tables_.model.special.unk});
  }

  const SentencePieceTables& tables_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> queue_;
  std::unordered_map<std::string_view, std::size_t> splits_;  // bytes of the left parts of unused pieces
  std::vector<PieceEnd> pieces_;
};

class SentencePieceEncoder final : public Encoder {
 public:
  SentencePieceEncoder(const SentencePieceTables& tables, SpecialTokens special)
      : Encoder(special), tables_(tables), spelled_(tables), merger_(tables) {}

 private:
  void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
    tables_.added.split(
        text, borders,
        [&](std::string_view part, const PartBorders& inside) {
          encode_part(part, part.data() == text.data(), inside, output);
        },
        [&](std::int32_t id, std::uint32_t part) { output.add(id, part); });
  }

  void encode_part(std::string_view part, bool at_front, const PartBorders& borders, TokenOutput& output) {
    const SentencePieceModel& model = tables_.model;
    verify(part.size() <= kLongestPiece, ErrorKind::data,
           "a text of {} bytes: SentencePiece looks at texts as a whole, and they may have at most {}", part.size(),
           kLongestPiece);
    // Without the prefix, the spaces that a text begins with would be dropped; one of them stays.
    const bool keeps_space = model.remove_extra_whitespaces && part.starts_with(' ');
    const bool prefix = model.add_dummy_prefix && (!model.prefix_once || at_front || keeps_space);
    const std::string_view text = spelled_.spell(part, prefix, output.part_of != nullptr);
    for_each_token(model.unigram ? best(text) : merger_.merge(text), text, model.special.unk, tables_.byte_ids,
                   [&](std::int32_t id, std::size_t begin, std::size_t end) {
                     output.ids.push_back(id);
                     if (output.part_of == nullptr) return;
                     output.part_of->push_back(borders.part_at(spelled_.last_byte(begin, end)));
                   });
  }

  const std::vector<PieceEnd>& best(std::string_view text) {
    const auto score_of = [&](std::int32_t id, std::size_t bytes) {
      const SentencePieceModel::Piece& piece = tables_.piece(id);
      if (piece.type != PieceType::user_defined) return piece.score;
      return static_cast<float>(0.1 * static_cast<double>(bytes - 1));
    };
    return best_.find(text, tables_.trie, score_of, tables_.model.special.unk, tables_.unknown_score);
  }

  const SentencePieceTables& tables_;
  SpelledText spelled_;
  PieceMerger merger_;
  BestPieces<float> best_;
};

}  // namespace

SentencePieceTables::SentencePieceTables(const SentencePieceModel& model_of, const AddedTokens& added_tokens)
    : model(model_of), added(added_tokens) {
  if (!model.character_map.empty()) characters = CharacterMap::read(model.character_map).value();
  float smallest_score = std::numeric_limits<float>::max();
  std::vector<std::pair<std::string_view, std::int32_t>> own, all;
  byte_ids.fill(-1);
  std::vector<bool> is_added(model.pieces.size());
  for (const AddedToken& token : model.added) is_added[static_cast<std::size_t>(token.id)] = true;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& [text, score, type] = model.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    if (type == PieceType::byte) byte_ids[static_cast<unsigned char>(*byte_of_piece(text))] = id;
    if (type == PieceType::user_defined && is_added[i]) continue;  // found before the library's rules
    if (type == PieceType::user_defined) own.emplace_back(text, id);
    const bool in_texts = type == PieceType::normal || type == PieceType::user_defined;
    if (model.unigram && in_texts) all.emplace_back(text, id);
    if (!model.unigram && (in_texts || type == PieceType::unused)) ids.add(text, id);
    if (type == PieceType::normal) smallest_score = std::min(smallest_score, score);
  }
  user_defined = PieceTrie(std::move(own));
  trie = PieceTrie(std::move(all));
  unknown_score = smallest_score - kUnknownPenalty;
}

std::unique_ptr<Encoder> SentencePieceTables::make_encoder(SpecialTokens special) const {
  return std::make_unique<SentencePieceEncoder>(*this, special);
}

}  // namespace megatron
