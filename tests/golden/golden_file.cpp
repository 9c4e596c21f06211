#include "golden/golden_file.h"

namespace megatron::test {

namespace {

Config config_of(const Hdf5File& file) {
  const auto size = [&](const char* name) { return static_cast<std::int64_t>(file.read_u64(name)); };
  Config config;
  ModelConfig& model = config.model;
  model.layers = size("layers");
  model.hidden_size = size("hidden_size");
  model.attention_heads = model.query_groups = size("attention_heads");
  model.ffn_hidden_size = size("ffn_hidden_size");
  model.sequence_length = size("sequence_length");
  model.max_position_embeddings = size("max_position_embeddings");
  model.vocab_size = size("vocab_size");
  model.vocab_multiple = size("padded_vocab_size");
  model.norm_epsilon = file.read_f64("norm_epsilon");
  model.hidden_dropout = model.attention_dropout = 0;
  config.parallel.data = 1;
  config.train.micro_batch_size = config.train.global_batch_size = size("micro_batch_size");
  OptimizerConfig& optimizer = config.optimizer;
  optimizer.beta1 = file.read_f64("beta1");
  optimizer.beta2 = file.read_f64("beta2");
  optimizer.epsilon = file.read_f64("epsilon");
  optimizer.weight_decay = file.read_f64("weight_decay");
  optimizer.clip_grad_norm = file.read_f64("clip_grad_norm");
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
