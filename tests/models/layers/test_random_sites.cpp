// The numbers of the sites where a model draws random numbers: each its own, and the same in every version.
#include <set>

#include "models/layers/context.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("random sites: no two of a model draw the same numbers") {
  std::set<std::uint64_t> keys;
  const auto draws = [&](std::uint64_t site) { return keys.insert(random_key(1234, 7, site)).second; };
  for (const ModelSite site : {ModelSite::embedding, ModelSite::decoder_embedding, ModelSite::pooled}) {
    CHECK(draws(random_site(site)));
  }
  for (std::int64_t layer = 0; layer < 200; ++layer) {
    for (std::uint64_t site = 1; site < static_cast<std::uint64_t>(LayerSite::end); ++site) {
      CAPTURE(layer, site);
      CHECK(draws(random_site(static_cast<LayerSite>(site), layer)));
    }
  }
}

TEST_CASE("random sites: numbers stay, so that a resumed run draws the same") {
  CHECK(random_site(ModelSite::embedding) == 0);
  CHECK(random_site(ModelSite::decoder_embedding) == 6);
  CHECK(random_site(ModelSite::pooled) == 7);
  CHECK(random_site(LayerSite::attention, 0) == 9);
  CHECK(random_site(LayerSite::router_input, 0) == 15);
  CHECK(random_site(LayerSite::attention, 1) == 17);
  CHECK(random_site(LayerSite::attention_output, 2) == 26);
  CHECK(random_site(LayerSite::mlp_output, 2) == 27);
  CHECK(random_site(LayerSite::cross_attention, 2) == 28);
  CHECK(random_site(LayerSite::cross_attention_output, 2) == 29);
  CHECK(random_site(LayerSite::place_order, 2) == 30);
}
