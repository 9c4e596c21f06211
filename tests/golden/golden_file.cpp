// Golden files contain more than src/data/hdf5 reads (many datasets, other attributes): the HDF5 library reads them,
// which come from this repository.
#include <hdf5.h>

#include <fmt/format.h>

#include <algorithm>

#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "data/hdf5/hdf5_check.h"
#include "data/hdf5/hdf5_file.h"
#include "golden/golden_file.h"

namespace megatron::test {

namespace {

/// A file of datasets and attributes below the root.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path)
      : path_(path), file_(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)), H5Fclose) {}

  template <class T>
  T number(const std::string& name) const {
    T value{};
    Hdf5Handle attribute(check(H5Aopen(file_.id(), name.c_str(), H5P_DEFAULT)), H5Aclose);
    check(H5Aread(attribute.id(), memory_type(T{}), &value));
    return value;
  }
  std::string text(const std::string& name) const {
    Hdf5Handle attribute(check(H5Aopen(file_.id(), name.c_str(), H5P_DEFAULT)), H5Aclose);
    Hdf5Handle type(check(H5Aget_type(attribute.id())), H5Tclose);
    std::string value(H5Tget_size(type.id()), '\0');
    check(H5Aread(attribute.id(), type.id(), value.data()));
    return value.substr(0, value.find('\0'));
  }
  template <class T>
  std::vector<T> read(const std::string& name) const {
    Hdf5Handle dataset(check(H5Dopen2(file_.id(), name.c_str(), H5P_DEFAULT)), H5Dclose);
    Hdf5Handle space(check(H5Dget_space(dataset.id())), H5Sclose);
    std::vector<T> values(static_cast<std::size_t>(check(H5Sget_simple_extent_npoints(space.id()))));
    check(H5Dread(dataset.id(), memory_type(T{}), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    return values;
  }
  std::vector<std::string> datasets() const {
    std::vector<std::string> names;
    const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* all) -> herr_t {
      static_cast<std::vector<std::string>*>(all)->emplace_back(name);
      return 0;
    };
    check(H5Literate(file_.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names));
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static hid_t memory_type(float) { return H5T_NATIVE_FLOAT; }
  static hid_t memory_type(double) { return H5T_NATIVE_DOUBLE; }
  static hid_t memory_type(int) { return H5T_NATIVE_INT; }
  static hid_t memory_type(std::uint64_t) { return H5T_NATIVE_UINT64; }
  template <class Value>
  Value check(Value value) const {
    check_hdf5(value, ErrorKind::data, path_, "reading");
    return value;
  }

  Hdf5Lock lock_;
  std::string path_;
  Hdf5Handle file_;
};

Config config_of(const GoldenFile& file) {
  const std::uint64_t samples = file.number<std::uint64_t>("samples");
  const std::string input = fmt::format(
      "[model]\n{}hidden_dropout = 0.0\nattention_dropout = 0.0\n"
      "[train]\nsteps = {}\nmicro_batch_size = {}\nglobal_batch_size = {}\n"
      "[optimizer]\nbetas = [{}, {}]\nepsilon = {}\nweight_decay = {}\nclip_grad_norm = {}\n"
      "[data]\ntrain = \"in the golden file\"\n",
      file.text("model"), file.number<std::uint64_t>("steps"), samples, samples, file.number<double>("beta1"),
      file.number<double>("beta2"), file.number<double>("epsilon"), file.number<double>("weight_decay"),
      file.number<double>("clip_grad_norm"));
  Config config = parse_config_text(input, "the golden file's model");
  resolve(config, 1, nullptr);
  return config;
}

bool has(const GoldenFile& file, const std::string& name) {
  const std::vector<std::string> names = file.datasets();
  return std::binary_search(names.begin(), names.end(), name);
}

NamedValues read_all_below(const GoldenFile& file, const std::string& prefix) {
  NamedValues values;
  for (const std::string& name : file.datasets()) {
    if (name.starts_with(prefix)) values[name.substr(prefix.size())] = file.read<float>(name);
  }
  return values;
}

// Batch of an encoder: alone, with a task's head or with a decoder.
void read_encoders_batch(const GoldenFile& file, Golden& golden) {
  golden.gradients = read_all_below(file, "gradients.");
  golden.loss = file.read<double>("loss").at(0);
  golden.gradient_norm = file.read<double>("gradient_norm").at(0);
  golden.batch.tokens = file.read<int>("tokens");
  if (!has(file, "encoder_tokens")) {
    golden.batch.types = file.read<int>("types");
    golden.batch.lengths = file.read<int>("lengths");
    golden.batch.labels = file.read<int>("labels");
  }
  if (has(file, "scores")) {
    golden.scores = file.read<double>("scores");
    return;
  }
  golden.batch.targets = file.read<int>("targets");
  golden.batch.weights = file.read<float>("weights");
  if (has(file, "encoder_tokens")) {
    golden.batch.encoder_tokens = file.read<int>("encoder_tokens");
    golden.batch.encoder_lengths = file.read<int>("encoder_lengths");
  } else {
    golden.loss_terms = file.read<double>("loss_terms");
  }
}

}  // namespace

Golden read_golden(const std::string& path, const std::string& type) {
  const GoldenFile file(path);
  Golden golden;
  golden.config = config_of(file);
  golden.learning_rate = file.number<double>("learning_rate");
  golden.parameters = read_all_below(file, "parameters.");
  if (has(file, "types") || has(file, "weights")) {
    read_encoders_batch(file, golden);
    return golden;
  }
  const std::string of_type = type.empty() ? "" : type + ".";
  if (type.empty()) {
    golden.logits = file.read<float>("logits");
  } else {
    golden.config.precision.compute = type.substr(0, type.find('_'));
    golden.config.run.native_16bit = type.ends_with("_native") ? "on" : "off";
    golden.config.precision.loss_scale = file.read<double>(of_type + "loss_scale").at(0);
    for (const auto& [name, norm] : read_all_below(file, of_type + "moved.")) golden.moved[name] = norm.at(0);
  }
  golden.gradients = read_all_below(file, of_type + "gradients.");
  golden.loss = file.read<double>(of_type + "loss").at(0);
  golden.gradient_norm = file.read<double>(of_type + "gradient_norm").at(0);
  golden.batch.tokens = file.read<int>("tokens");
  golden.batch.targets = file.read<int>("targets");
  golden.losses = file.read<double>(of_type + "steps.losses");
  golden.norms = file.read<double>(of_type + "steps.norms");

  const std::vector<int> tokens = file.read<int>("steps.tokens"), targets = file.read<int>("steps.targets");
  const std::size_t steps = file.number<std::uint64_t>("steps"), size = golden.batch.tokens.size();
  verify(tokens.size() == steps * size && targets.size() == steps * size, ErrorKind::data, "{}: {} tokens in {} steps",
         path, tokens.size(), steps);
  for (std::size_t i = 0; i < steps; ++i) {
    const auto part = [&](const std::vector<int>& all) {
      return std::vector<int>(all.data() + i * size, all.data() + (i + 1) * size);
    };
    GoldenBatch& step = golden.steps.emplace_back();
    step.tokens = part(tokens);
    step.targets = part(targets);
  }
  return golden;
}

}  // namespace megatron::test
