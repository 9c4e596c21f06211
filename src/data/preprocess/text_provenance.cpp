#include "data/preprocess/text_provenance.h"

#include <filesystem>
#include <map>
#include <optional>

#include "base/core/error.h"
#include "base/system/durable_file.h"

namespace megatron {

using OrderedJson = nlohmann::ordered_json;

TextOrigin origin_of_text(const std::string& path, LastProvenance& last) {
  const std::optional<OrderedJson>& provenance = last.in(folder_of(path));
  if (!provenance) return TextOrigin::unknown;
  const std::string name = std::filesystem::path(path).filename().string();
  for (const OrderedJson& output : provenance->at("outputs")) {
    if (output.at("file") == name) return is_as_written(path, output) ? TextOrigin::cleaned : TextOrigin::changed;
  }
  return TextOrigin::unknown;
}

std::string describe_origins(const std::string& program, std::span<const InputIdentity> files,
                             std::span<const TextOrigin> origins) {
  internal_check(files.size() == origins.size(), "files without an origin", files.size(), origins.size());
  OrderedJson inputs = OrderedJson::array(), results = OrderedJson::array();
  std::map<std::string, std::size_t> numbers;  // by folder
  for (std::size_t i = 0; i < files.size(); ++i) {
    OrderedJson input = {{"file", files[i].path}, {"bytes", files[i].bytes}};
    const std::string folder = folder_of(files[i].path);
    if (origins[i] == TextOrigin::cleaned) {
      const auto [number, is_new] = numbers.try_emplace(folder, results.size());
      const std::optional<OrderedJson> provenance = is_new ? provenance_in(folder) : std::nullopt;
      if (provenance) results.push_back(*provenance);
      if (number->second < results.size()) input["from"] = number->second;
    }
    inputs.push_back(input);
  }
  if (results.empty()) return "";
  return json_text(OrderedJson{{"made_by", program}, {"inputs", inputs}, {"results", results}});
}

}  // namespace megatron
