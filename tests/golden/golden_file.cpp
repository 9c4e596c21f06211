#include "golden/golden_file.h"

#include <fmt/format.h>

#include "config/parse.h"
#include "config/resolve.h"

namespace megatron::test {

namespace {

Config config_of(const Hdf5File& file) {
  const std::uint64_t samples = file.read_u64("samples");
  const std::string input = fmt::format(
      "[model]\n{}hidden_dropout = 0.0\nattention_dropout = 0.0\n"
      "[train]\nsteps = {}\nmicro_batch_size = {}\nglobal_batch_size = {}\n"
      "[optimizer]\nbetas = [{}, {}]\nepsilon = {}\nweight_decay = {}\nclip_grad_norm = {}\n"
      "[data]\ntrain = \"in the golden file\"\n",
      file.read_text("model"), file.read_u64("steps"), samples, samples, file.read_f64("beta1"), file.read_f64("beta2"),
      file.read_f64("epsilon"), file.read_f64("weight_decay"), file.read_f64("clip_grad_norm"));
  Config config = parse_config_text(input, "the golden file's model");
  resolve(config, 1, nullptr);
  return config;
}

template <class T>
std::vector<T> read(const Hdf5File& file, const std::string& name) {
  return file.open_dataset(name).read_all<T>();
}

NamedValues read_all_below(const Hdf5File& file, const std::string& prefix) {
  NamedValues values;
  for (const std::string& name : file.datasets()) {
    if (name.starts_with(prefix)) values[name.substr(prefix.size())] = read<float>(file, name);
  }
  return values;
}

}  // namespace

Golden read_golden(const std::string& path) {
  const Hdf5File file = Hdf5File::open(path, ErrorKind::data);
  Golden golden;
  golden.config = config_of(file);
  golden.learning_rate = file.read_f64("learning_rate");
  golden.parameters = read_all_below(file, "parameters.");
  golden.gradients = read_all_below(file, "gradients.");
  golden.loss = read<double>(file, "loss").at(0);
  golden.gradient_norm = read<double>(file, "gradient_norm").at(0);
  golden.batch = {read<int>(file, "tokens"), read<int>(file, "targets")};
  golden.logits = read<float>(file, "logits");
  golden.losses = read<double>(file, "steps.losses");
  golden.norms = read<double>(file, "steps.norms");

  const std::vector<int> tokens = read<int>(file, "steps.tokens"), targets = read<int>(file, "steps.targets");
  const std::size_t steps = file.read_u64("steps"), size = golden.batch.tokens.size();
  verify(tokens.size() == steps * size && targets.size() == steps * size, ErrorKind::data, "{}: {} tokens in {} steps",
         path, tokens.size(), steps);
  for (std::size_t i = 0; i < steps; ++i) {
    const auto part = [&](const std::vector<int>& all) {
      return std::vector<int>(all.data() + i * size, all.data() + (i + 1) * size);
    };
    golden.steps.push_back({part(tokens), part(targets)});
  }
  return golden;
}

}  // namespace megatron::test
