#include "data/cleaning_steps/task_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/cleaning_steps/document.h"
#include "data/preprocess/json_text.h"
#include "data/preprocess/text_corpus.h"

namespace megatron {

namespace {

class TextFinder {
 public:
  TextFinder(const std::vector<std::string>& fields, const std::function<void(std::string_view)>& take)
      : fields_(fields), take_(take) {}

  /// `named`: the value is that of a field.
  void visit(const nlohmann::json& value, bool named) const {
    if (value.is_string() && named) take_(value.get_ref<const std::string&>());
    if (value.is_array()) {
      for (const nlohmann::json& element : value) visit(element, named);
    }
    if (!value.is_object()) return;
    for (const auto& [name, member] : value.items()) {
      visit(member, std::find(fields_.begin(), fields_.end(), name) != fields_.end());
    }
  }

 private:
  const std::vector<std::string>& fields_;
  const std::function<void(std::string_view)>& take_;
};

}  // namespace

void visit_task_texts(const std::vector<std::string>& paths, const std::vector<std::string>& fields,
                      const std::function<void(std::string_view text)>& take) {
  TextCorpus files({.paths = paths, .format = "jsonl"});
  const TextFinder finder(fields, take);
  Document checked(std::vector<MemberName>{});
  for (std::size_t file = 0; file < files.files(); ++file) {
    files.visit_lines({file, 0, files.file_bytes()[file]}, [&](std::string_view line, std::uint64_t) {
      checked.read_json(line);  // not too deep for what follows
      const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
      if (value.is_discarded()) throw BadDocument{"not JSON"};
      finder.visit(value, false);
    });
  }
}

}  // namespace megatron
