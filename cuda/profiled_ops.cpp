#include "cuda/profiled_ops.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <string_view>

#include "backend/ops/ops_decorator.h"
#include "base/core/ranges.h"

namespace megatron {

namespace {

class ProfiledOps final : public OpsDecorator, public Ranges {
 public:
  explicit ProfiledOps(std::unique_ptr<Ops> ops) : OpsDecorator(std::move(ops)) {}

  Ranges* ranges() override { return this; }
  void begin(const char* name, std::int64_t number) override {
    if (number < 0) {
      (void)nvtxRangePushA(name);
    } else {
      (void)nvtxRangePushA(fmt::format("{} {}", name, number).c_str());
    }
  }
  void end() override { (void)nvtxRangePop(); }

 private:
  void pass(const char* verb, const std::function<void()>& call) override {
    const Range range(this, verb);
    call();
  }
};

}  // namespace

std::unique_ptr<Ops> with_ranges_if_wanted(std::unique_ptr<Ops> ops) {
  const char* wanted = std::getenv("MEGATRON_NVTX");
  if (wanted == nullptr || std::string_view(wanted) != "1") return ops;
  return std::make_unique<ProfiledOps>(std::move(ops));
}

}  // namespace megatron
