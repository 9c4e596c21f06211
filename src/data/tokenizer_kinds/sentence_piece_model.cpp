#include "data/tokenizer_kinds/sentence_piece_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/text/utf8.h"
#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer/token_index.h"
#include "data/tokenizer/tokenizer_pipeline.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/best_pieces.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace {

constexpr const char* kSentencePieceAdvice =
    "a .model file of SentencePiece is right, of type unigram or BPE (spiece.model, tokenizer.model)";
// SentencePiece leaves fields from 200 on to others.
constexpr std::uint64_t kPrefixOnce = 19001, kAddedToken = 19002;
constexpr std::string_view kNoDummyPrefix("\x18\0", 2);  ///< add_dummy_prefix: false

struct BadMessage {};

/// Fields of a message of Protocol Buffers, one after the other.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : rest_(message) {}

  /// The next field into `number`, `value` (of an integer or float) and `bytes` (of a string or message).
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    if (key < 8 || key > UINT32_MAX) throw BadMessage{};  // readers that drop the bits above see another field
    number = key >> 3;
    bytes = {};
    switch (key & 7) {
      case 0: value = varint(); break;
      case 1: value = fixed(8); break;
      case 2: bytes = take(varint()); break;
      case 5: value = fixed(4); break;
      default: throw BadMessage{};
    }
    wire = static_cast<int>(key & 7);
    return true;
  }
  std::uint64_t integer() const { return of(0), value; }
  std::string_view text() const { return of(2), bytes; }
  float real() const {
    of(5);
    const auto bits = static_cast<std::uint32_t>(value);
    float result = 0;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }

  std::uint64_t number = 0;

 private:
  void of(int expected) const {
    if (wire != expected) throw BadMessage{};
  }
  std::string_view take(std::uint64_t length) {
    if (length > rest_.size()) throw BadMessage{};
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }
  std::uint64_t fixed(std::size_t length) {
    std::uint64_t result = 0;
    std::memcpy(&result, take(length).data(), length);
    return result;
  }
  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      result |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return result;
    }
    throw BadMessage{};
  }

  std::string_view rest_, bytes;
  std::uint64_t value = 0;
  int wire = 0;
};

class ModelReader {
 public:
  explicit ModelReader(const std::string& path) : file_(read_binary_vocabulary_file(path, kSentencePieceAdvice)) {}

  SentencePieceModel read(const TokenizerChoice& choice) {
    try {
      MessageReader model(file_.text);
      while (model.next()) {
        if (model.number == 1) read_piece(model.text());
        if (model.number == 2) read_trainer(model.text());
        if (model.number == 3 || model.number == 5) read_normalizer(model.text(), model.number == 3);
        if (model.number == kPrefixOnce) model_.prefix_once = model.integer() != 0;
        if (model.number == kAddedToken) read_added(model.text());
        if (model.number == 4 && !model.text().empty()) refuse("has texts to test itself with at every start");
      }
    } catch (const BadMessage&) {
      refuse("no model of SentencePiece, or one that is cut off");
    }
    check_options();
    return build(choice);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::data, "{}: {}; {}", file_.path, fmt::format(format, std::forward<Args>(args)...),
         kSentencePieceAdvice);
  }

  void read_piece(std::string_view bytes) {
    SentencePieceModel::Piece piece;
    std::uint64_t type = 1;
    MessageReader message(bytes);
    while (message.next()) {
      if (message.number == 1) piece.text = message.text();
      if (message.number == 2) piece.score = message.real();
      if (message.number == 3) type = message.integer();
    }
    const std::size_t id = model_.pieces.size();
    if (id >= kMostTokens) refuse("more than {} pieces", kMostTokens);
    if (type < 1 || type > 6) refuse("piece {} has the unknown type {}", id, type);
    piece.type = static_cast<PieceType>(type);
    if (piece.text.empty() || piece.text.size() > kLongestToken) {
      refuse("piece {} has {} bytes", id, piece.text.size());
    }
    if (first_invalid_utf8(piece.text) != piece.text.size() || piece.text.find('\0') != std::string::npos) {
      refuse("piece {} is not UTF-8, or has a NUL", id);
    }
    if (!(std::abs(piece.score) <= kLargestPieceScore)) refuse("piece {} has the score {}", id, piece.score);
    if (const TokenIndex::Entry* const same = ids_.find(piece.text)) {
      refuse("piece \"{}\" is there twice, with ids {} and {}", shown(piece.text), same->id, id);
    }
    if (piece.type == PieceType::unknown) {
      if (model_.special.unk >= 0) refuse("has two unknown pieces, {} and {}", model_.special.unk, id);
      model_.special.unk = static_cast<std::int32_t>(id);
    }
    ids_.add(piece.text, static_cast<std::int32_t>(id));
    model_.pieces.push_back(std::move(piece));
  }

  void read_trainer(std::string_view bytes) {
    MessageReader message(bytes);
    while (message.next()) {
      if (message.number == 3) type_ = message.integer();
      if (message.number == 24) suffix_ = message.integer() != 0;
      if (message.number == 35) model_.byte_fallback = message.integer() != 0;
      if (message.number == 46) bos_name_ = message.text();
      if (message.number == 47) eos_name_ = message.text();
      if (message.number == 48) pad_name_ = message.text();
    }
  }

  void read_normalizer(std::string_view bytes, bool of_texts) {
    MessageReader message(bytes);
    std::string_view map;
    while (message.next()) {
      if (message.number == 2) map = message.text();
      if (!of_texts) continue;
      if (message.number == 3) model_.add_dummy_prefix = message.integer() != 0;
      if (message.number == 4) model_.remove_extra_whitespaces = message.integer() != 0;
      if (message.number == 5) escape_ = message.integer() != 0;
    }
    if (!map.empty() && !CharacterMap::read(map)) refuse("the normalizer's table of characters is damaged");
    if (!of_texts) return;
    if (!map.empty()) model_.character_map = map;  // a second message is merged with the first
    model_.normalizer += bytes;
  }

  void read_added(std::string_view text) {
    try {
      JsonReader json(text);
      PlacedToken read = read_added_token(json, text);
      const TokenIndex::Entry* const piece = ids_.find(read.token.content);
      if (piece == nullptr || static_cast<std::uint64_t>(piece->id) != read.id) refuse("an added token is no piece");
      read.token.id = piece->id;
      if (kept_.insert(read.token.id).second) model_.added.push_back(std::move(read.token));
    } catch (const JsonError& error) {
      refuse("an added token: {}", error.reason);
    } catch (const UnsupportedStep& step) {
      refuse("an added token: {}", step.what);
    }
  }

  void check_options() {
    if (model_.pieces.empty()) refuse("no pieces");
    if (type_ == 3 || type_ == 4) refuse("asks for the model type {}", type_ == 3 ? "word" : "char");
    if (type_ != 1 && type_ != 2) refuse("asks for the model type {}, which SentencePiece does not have", type_);
    model_.unigram = type_ == 1;
    if (suffix_) refuse("asks for treat_whitespace_as_suffix, which this program does not have");
    if (!escape_) refuse("asks for escape_whitespaces = false, which this program does not have");
    if (model_.special.unk < 0) refuse("no unknown piece (<unk>)");
    for (const auto& [text, score, type] : model_.pieces) {
      const bool is_right = type != PieceType::byte || (model_.byte_fallback && byte_of_piece(text));
      if (!is_right) refuse("the piece \"{}\" cannot stand for a byte", shown(text));
    }
    if (!model_.byte_fallback) return;
    for (int byte = 0; byte < 256; ++byte) {
      const TokenIndex::Entry* const found = ids_.find(fmt::format("<0x{:02X}>", byte));
      if (found == nullptr || piece(found->id).type != PieceType::byte) refuse("lacks the piece of byte {}", byte);
    }
  }

  SentencePieceModel::Piece& piece(std::int32_t id) { return model_.pieces[static_cast<std::size_t>(id)]; }

  /// -1 unless no text has this piece, or the model's maker meant it to be found in texts.
  std::int32_t special_id(std::string_view name) {
    const TokenIndex::Entry* const found = ids_.find(name);
    if (found == nullptr) return -1;
    const PieceType type = piece(found->id).type;
    return type == PieceType::control || type == PieceType::user_defined ? found->id : -1;
  }
  std::int32_t control_id(std::string_view name) {
    const std::int32_t id = special_id(name);
    return id >= 0 && piece(id).type == PieceType::control ? id : -1;
  }

  SpecialIds special_ids() {
    SpecialIds special = find_special_ids([&](std::string_view name) { return special_id(name); });
    special.unk = model_.special.unk;
    special.eos = control_id(eos_name_);
    special.pad = control_id(pad_name_);
    special.bos = control_id(bos_name_);
    if (special.bos < 0) special.bos = special.pad;
    if (special.eos < 0) refuse("no control piece \"{}\" that ends documents", shown(eos_name_));
    return special;
  }

  SentencePieceModel build(const TokenizerChoice& choice) {
    model_.text = file_.text;
    if (!choice.alone) read_folder(choice.rows, choice.extra_ids);
    model_.special = special_ids();
    for (const std::string& name : missing_sentinels(model_.special, choice.extra_ids, file_)) {
      if (ids_.find(name) != nullptr) refuse("{} is an ordinary piece", name);
      append(name, PieceType::control);
    }
    if (model_.pieces.size() > kMostTokens) refuse("more than {} pieces", kMostTokens);
    model_.special = special_ids();
    return std::move(model_);
  }

  void read_folder(std::int64_t rows, std::int64_t extra_ids) {
    const FolderSettings folder = folder_settings(folder_part(file_.path));
    for (const AddedToken& token : folder.added) {
      if (rows == 0 || token.id < rows) add_token(token);
    }
    if (!model_.add_dummy_prefix) return;
    if (!folder.add_prefix_space.value_or(true) && extra_ids == 0) {
      model_.text += "\x1A\x02" + std::string(kNoDummyPrefix);  // normalizer_spec, which is merged with the one before
      return read_normalizer(kNoDummyPrefix, true);
    }
    if (folder.legacy || model_.prefix_once) return;
    model_.prefix_once = true;
    model_.text += varint(kPrefixOnce << 3) + varint(1);
  }

  /// A piece may be an added token too, with the same id.
  void add_token(const AddedToken& token) {
    const auto id = static_cast<std::size_t>(token.id), pieces = model_.pieces.size();
    const TokenIndex::Entry* const known = ids_.find(token.content);
    const bool looks_around = token.single_word || token.lstrip || token.rstrip;
    if (known != nullptr && known->id == token.id) {  // the library finds user-defined pieces by itself
      const bool finds = token.special || piece(token.id).type == PieceType::user_defined;
      return looks_around || !finds ? keep(token) : void();
    }
    if (known == nullptr && id == pieces) {
      append(token.content, token.special ? PieceType::control : PieceType::user_defined);
      return looks_around || !token.special ? keep(token) : void();
    }
    fail(ErrorKind::data,
         "{}: the folder's {} or {} gives the id {} to \"{}\", {}; it is of another model, or of one that numbers its "
         "pieces otherwise: use the model's tokenizer.json",
         file_.path, kAddedTokensFile, kTokenizerConfigFile, id, shown(token.content),
         known != nullptr ? fmt::format("which is piece {}", known->id) : fmt::format("and the next id is {}", pieces));
  }

  void keep(const AddedToken& token) {
    if (!kept_.insert(token.id).second) return;  // the file is one that was kept before
    const std::string written = written_token(token);
    model_.text += varint(kAddedToken << 3 | 2) + varint(written.size()) + written;
    model_.added.push_back(token);
  }

  /// pieces { piece: text, score: 0, type: type }
  void append(const std::string& text, PieceType type) {
    std::string message = "\x0A" + varint(text.size()) + text + std::string("\x15\0\0\0\0\x18", 6);
    message += static_cast<char>(type);
    model_.text += "\x0A" + varint(message.size()) + message;
    ids_.add(text, static_cast<std::int32_t>(model_.pieces.size()));
    model_.pieces.push_back({text, 0.0f, type});
  }

  static std::string varint(std::size_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
  }

  const NamedText file_;
  SentencePieceModel model_;
  TokenIndex ids_;
  std::unordered_set<std::int32_t> kept_;  // ids of model_.added
  std::uint64_t type_ = 1;
  bool suffix_ = false, escape_ = true;
  std::string bos_name_ = "<s>", eos_name_ = "</s>", pad_name_ = "<pad>";
};

}  // namespace

SentencePieceModel read_sentence_piece_model(const TokenizerChoice& choice) {
  return ModelReader(choice.vocab_file).read(choice);
}

}  // namespace megatron
