#include "data/tokenizer/folder_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/json_members.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_pipeline.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

/// The id and flags of added tokens by their names.
class FolderTokens {
 public:
  void add(const std::string& path, AddedToken token, const Json& id) {
    const std::string& content = token.content;
    const bool valid = !content.empty() && content.size() <= kLongestToken && content.find('\0') == std::string::npos;
    verify(valid, ErrorKind::data, "{}: the token \"{}\" of {} bytes: 1 to {} are right, and none of them 0", path,
           shown(content), content.size(), kLongestToken);
    verify(id.is_number_unsigned() && id.get<std::uint64_t>() < kMostTokens, ErrorKind::data,
           "{}: the token \"{}\" has the id {}; ids are whole numbers below {}", path, shown(content),
           id.dump().substr(0, 40), kMostTokens);
    token.id = id.get<std::int32_t>();
    const auto known = tokens_.find(content);
    verify(known == tokens_.end() || known->second.id == token.id, ErrorKind::data,
           "{}: the token \"{}\" has the ids {} and {}", path, shown(content),
           known == tokens_.end() ? 0 : known->second.id, token.id);
    tokens_[content] = token;
  }
  std::vector<AddedToken> by_id() const {
    std::vector<AddedToken> list;
    for (const auto& [content, token] : tokens_) list.push_back(token);
    std::sort(list.begin(), list.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return list;
  }

 private:
  std::map<std::string, AddedToken> tokens_;
};

/// A member as T; `otherwise` where it is absent or null. `name` is what messages call it.
template <class T>
T read_member(const NamedText& file, const Json& object, const char* key, const std::string& name, T otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  const bool right = std::is_same_v<T, bool>   ? found->is_boolean()
                     : std::is_same_v<T, Json> ? found->is_object()
                                               : found->is_string();
  const char* const expected = std::is_same_v<T, bool>   ? "true or false"
                               : std::is_same_v<T, Json> ? "an object"
                                                         : "a text";
  if (!right)
    file.fail_at(file.text.find(fmt::format("\"{}\"", key)), "\"{}\" is {}, where {} is right", name,
                 shown(found->dump()), expected);
  return found->get<T>();
}

/// As read_folder_json; `file` becomes what was read.
Json read_object(NamedText& file) {
  if (!tokenizer_file_exists(file.path)) return nullptr;
  file.text = read_vocabulary_file(file.path, file.advice).text;
  Json read = Json::parse(file.text, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) file.fail_at(0, "no JSON object, or one that is cut off");
  return read;
}

constexpr const char* kFolderAdvice = "it is as transformers writes it, or may be deleted";

/// Names of special tokens in a file: those that every class of transformers has, and a model's own, which it looks for
/// in the normalized text all the same.
struct SpecialNames {
  std::unordered_set<std::string> usual, own;

  void add(const Json& file) {
    static const std::unordered_set<std::string> kUsual = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                           "pad_token", "cls_token", "mask_token"};
    const auto into = [](std::unordered_set<std::string>& names) {
      return [&names](const Json& token) {
        const Json name = token.is_object() ? token.value("content", Json()) : token;
        if (name.is_string()) names.insert(name.get<std::string>());
      };
    };
    for (const auto& [key, value] : file.items()) {
      if (key.ends_with("_token")) into(kUsual.contains(key) ? usual : own)(value);
      if (key != "additional_special_tokens" && key != "extra_special_tokens") continue;
      if (value.is_structured()) std::for_each(value.begin(), value.end(), into(value.is_array() ? usual : own));
    }
  }
  bool contains(const std::string& name) const { return usual.contains(name) || own.contains(name); }
};

void read_added_tokens(const std::string& folder, SpecialNames special, FolderTokens& tokens) {
  const std::string path = folder + kAddedTokensFile;
  const Json added = read_folder_json(path);
  if (added.is_null()) return;
  special.add(read_folder_json(folder + "special_tokens_map.json"));
  for (const auto& [content, id] : added.items()) {
    tokens.add(
        path,
        {.content = content, .special = special.contains(content), .normalized = !special.usual.contains(content)}, id);
  }
}

void read_decoder(const NamedText& file, const Json& config, const SpecialNames& names, FolderTokens& tokens) {
  const Json decoder = read_member(file, config, "added_tokens_decoder", "added_tokens_decoder", Json::object());
  for (const auto& [id, token] : decoder.items()) {
    const std::string name = fmt::format("added_tokens_decoder.{}", shown(id));
    if (!token.is_object()) file.fail_at(file.text.find("\"added_tokens_decoder\""), "\"{}\" is no object", name);
    const auto content = read_member<std::string>(file, token, "content", name + ".content", "");
    if (content.empty() && token.contains("content") && token.at("content").is_string()) continue;  // as transformers
    if (content.empty()) file.fail_at(file.text.find("\"" + id + "\""), "\"{}.content\" names no token", name);
    std::uint64_t number = kMostTokens;
    const char* const end = id.data() + id.size();
    if (std::from_chars(id.data(), end, number).ptr != end) number = kMostTokens;  // a number that is refused
    const auto flag = [&, &object = token](const char* key, bool otherwise) {
      return read_member(file, object, key, fmt::format("{}.{}", name, key), otherwise);
    };
    const bool special = flag("special", false);
    tokens.add(file.path,
               {.content = content,
                .special = special || names.contains(content),
                .normalized = flag("normalized", !special),
                .single_word = flag("single_word", false),
                .lstrip = flag("lstrip", false),
                .rstrip = flag("rstrip", false)},
               number);
  }
}

}  // namespace

Json read_folder_json(const std::string& path) {
  NamedText file{path, "", kFolderAdvice};
  return read_object(file);
}

std::string tokenizer_class_of(const std::string& folder) {
  const auto in = [](const Json& file) {
    const auto found = file.is_object() ? file.find("tokenizer_class") : file.end();
    return found == file.end() || !found->is_string() ? std::string() : found->get<std::string>();
  };
  std::string name = in(read_folder_json(folder + kTokenizerConfigFile));
  const std::string model = folder + "config.json";
  if (name.empty() && tokenizer_file_exists(model)) {
    name = in(Json::parse(read_binary_vocabulary_file(model, kFolderAdvice).text, nullptr, /*allow_exceptions=*/false));
  }
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

FolderSettings folder_settings(const std::string& folder) {
  const std::string path = folder + kTokenizerConfigFile;
  NamedText file{path, "", kFolderAdvice};
  const Json config = read_object(file);
  FolderSettings settings;
  FolderTokens tokens;
  SpecialNames names;
  names.add(config);
  if (config.is_object() && config.contains("added_tokens_decoder")) {
    read_decoder(file, config, names, tokens);
    settings.replaces = true;
  } else {
    read_added_tokens(folder, names, tokens);
  }
  settings.added = tokens.by_id();
  if (config.is_null()) return settings;
  settings.legacy = read_member(file, config, "legacy", "legacy", true);
  const auto read = [&](const char* key, std::optional<bool>& value) {
    if (config.contains(key) && !config.at(key).is_null()) value = read_member(file, config, key, key, false);
  };
  if (!read_member<std::string>(file, config, "tokenizer_class", "tokenizer_class", "").starts_with("T5")) {
    read("add_prefix_space", settings.add_prefix_space);  // T5's class does not look at it
  }
  read("strip_accents", settings.strip_accents);
  read("tokenize_chinese_chars", settings.tokenize_chinese_chars);
  return settings;
}

void FolderSettings::check_ids(const std::string& vocab_file, std::span<const std::string> tokens) const {
  std::size_t next = tokens.size();
  for (const AddedToken& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    const bool listed = id < tokens.size();
    verify(
        listed ? tokens[id] == token.content : id == next, ErrorKind::data,
        "{}: the folder's {} or {} gives the id {} to \"{}\", and {}; it is of another model, or of one that numbers "
        "its tokens otherwise: use the model's tokenizer.json",
        vocab_file, kAddedTokensFile, kTokenizerConfigFile, id, shown(token.content),
        listed ? "the vocabulary has another token there" : fmt::format("the next id is {}", next));
    if (!listed) ++next;
  }
}

bool FolderSettings::adds_to(std::span<const AddedToken> known) const {
  std::unordered_set<std::string_view> names;
  for (const AddedToken& token : known) names.insert(token.content);
  return !std::all_of(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.special && !token.single_word && !token.lstrip && !token.rstrip && names.contains(token.content);
  });
}

std::vector<AddedToken> FolderSettings::with(std::span<const AddedToken> known) const {
  std::vector<AddedToken> all = added;
  std::unordered_set<std::string_view> names;
  for (const AddedToken& token : added) names.insert(token.content);
  for (const AddedToken& token : known) {
    if (!names.contains(token.content)) all.push_back(token);
  }
  return all;
}

NamedText FolderSettings::added_to(NamedText file) const {
  std::unordered_map<std::string_view, const AddedToken*> missing;
  for (const AddedToken& token : added) missing.emplace(token.content, &token);
  std::string list;
  bool changes = false;
  try {
    const std::string_view listed = member_text(file.text, "added_tokens");
    JsonReader json(listed.empty() ? "[]" : listed);
    for_each_element(json, [&](JsonReader& token) {
      const std::string_view written = raw_value(token, listed);
      list += list.empty() ? "" : ",";
      JsonReader again(written);
      PlacedToken read = read_added_token(again, written);
      const auto found = missing.find(read.token.content);
      if (found == missing.end() || read.id >= kMostTokens) return void(list += written);
      AddedToken other = *found->second;
      missing.erase(found);
      other.id = read.token.id = static_cast<std::int32_t>(read.id);
      const bool differs = replaces && other != read.token;
      changes |= differs;
      list += differs ? written_token(other) : std::string(written);
    });
  } catch (const JsonError&) {  // the file's reader says what is wrong
    return file;
  } catch (const UnsupportedStep&) {
    return file;
  }
  for (const AddedToken& token : added) {
    if (!missing.contains(token.content)) continue;
    list += (list.empty() ? "" : ",") + written_token(token);
    changes = true;
  }
  if (!changes) return file;
  file.text = with_member(file.text, "added_tokens", "[" + list + "]");
  file.advice = "it was read with the added tokens that tokenizer_config.json or added_tokens.json next to it lists";
  return file;
}

}  // namespace megatron
