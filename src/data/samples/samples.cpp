#include "data/samples/samples.h"

#include <nlohmann/json.hpp>
#include <ostream>

namespace megatron {

BatchLayout used_layout(const BatchLayout& layout, const Samples& samples, bool padded) {
  return padded || !samples.count_per_sample(layout.sizes) ? layout : layout.without(&Rows::weights);
}

void print_samples(Samples& samples, std::uint64_t first, std::uint64_t count, const DecodeTokens& decode,
                   std::ostream& out) {
  for (std::uint64_t sample = first; sample < first + count; ++sample) {
    const std::vector<NamedTokens> shown = samples.show(sample);
    out << "{\"sample\":" << sample;
    for (const NamedTokens& tokens : shown) {
      out << ",\"" << tokens.name << "\":[";
      for (std::size_t t = 0; t < tokens.ids.size(); ++t) out << (t == 0 ? "" : ",") << tokens.ids[t];
      out << "]";
    }
    if (decode) {
      out << ",\"text\":"
          << nlohmann::json(decode(shown.at(0).ids)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    out << "}\n";
  }
}

}  // namespace megatron
