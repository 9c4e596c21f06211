// The stored models of transformers (tests/golden/interop), copies of them that a test may damage, and import and
// export on one rank.
#pragma once

#include <cmath>

#include "checkpoint/hugging_face/hugging_face.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"
#include "support/worst_of.h"

namespace megatron::test {

namespace fs = std::filesystem;
using nlohmann::json;

inline std::string stored_model(const std::string& name) {
  return std::string(MEGATRON_GOLDEN_FOLDER) + "/interop/" + name;
}

inline ConversionReport import_model(const std::string& source, const std::string& target,
                                     const ImportOptions& options = {}) {
  ConversionReport report;
  run_as_threads(1, [&](Communicator& world) { report = import_checkpoint(source, target, world, options); });
  return report;
}

inline ConversionReport export_model(const std::string& source, const std::string& target,
                                     const ExportOptions& options = {}) {
  ConversionReport report;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    report = export_checkpoint(open_named_checkpoint(world, source, warnings), target, world, options);
  });
  return report;
}

inline std::vector<float> numbers_of(const SafetensorsModel& model, const std::string& name) {
  std::vector<float> numbers(static_cast<std::size_t>(model.entry(name).elements()));
  model.read(name, 0, numbers);
  return numbers;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = worst_of(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

/// A copy of a golden model that a test may damage.
class Copy {
 public:
  explicit Copy(const std::string& name) { fs::copy(stored_model(name), path()); }
  std::string path() const { return folder_.file("model"); }
  std::string target() const { return folder_.file("target"); }
  void change_config(const std::function<void(json&)>& change) const {
    json config = json::parse(contents_of(path() + "/config.json"));
    change(config);
    write_file(path() + "/config.json", config.dump());
  }
  /// The same tensors with others added, changed or left out.
  void change_tensors(
      const std::function<void(std::map<std::string, std::pair<NewTensor, std::vector<float>>>&)>& change) {
    std::map<std::string, std::pair<NewTensor, std::vector<float>>> tensors;
    {
      const SafetensorsModel model(path());
      for (const std::string& name : model.names()) {
        tensors[name] = {{name, model.entry(name).shape}, numbers_of(model, name)};
      }
    }
    change(tensors);
    fs::remove(path() + "/model.safetensors");
    std::vector<NewTensor> list;
    std::vector<std::vector<float>> numbers;
    for (const auto& [name, tensor] : tensors) {
      list.push_back(tensor.first);
      numbers.push_back(tensor.second);
    }
    write_safetensors(path(), list, SafetensorsType::f32, 1 << 30, [&](std::size_t index, std::span<float> to) {
      std::copy(numbers[index].begin(), numbers[index].end(), to.begin());
    });
  }
  void refused(const std::string& part, const ImportOptions& options = {}) const {
    require_error(ErrorKind::checkpoint, {part}, [&] { import_model(path(), target(), options); });
    CHECK_FALSE(fs::exists(target()));
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      CHECK_FALSE(entry.path().filename().string().starts_with(".making"));
    }
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace megatron::test
