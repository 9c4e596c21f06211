// Sets of copies that share (optimizer.share_within) and the hosts that they are on.
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("shares: a set of copies on several hosts is a warning") {
  Config config = tiny_config();
  config.parallel.tensor = 2;
  config.parallel.data = 4;
  config.optimizer.share = "weights";
  std::vector<std::string> hosts(8, "node07");
  CHECK(sets_on_hosts_warning(config, hosts).empty());  // all share
  config.optimizer.share_within = 2;
  CHECK(sets_on_hosts_warning(config, hosts).empty());
  for (std::size_t rank = 4; rank < 8; ++rank) hosts[rank] = "node08";
  CHECK(sets_on_hosts_warning(config, hosts).empty());
  hosts = {"node07", "node07", "node07", "node08", "node08", "node08", "node09", "node09"};
  CHECK_THAT(sets_on_hosts_warning(config, hosts),
             Contains("optimizer.share_within = 2: ranks 1, 3 share and are on hosts node07, node08"));
}
