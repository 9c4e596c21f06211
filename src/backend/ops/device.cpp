#include "backend/ops/device.h"

#include "backend/ops/ops.h"

namespace megatron {

Backend::Backend() = default;
Backend::Backend(std::unique_ptr<Device> d, std::unique_ptr<Ops> o) : device(std::move(d)), ops(std::move(o)) {}
Backend::Backend(Backend&&) noexcept = default;
Backend& Backend::operator=(Backend&&) noexcept = default;
Backend::~Backend() = default;

}  // namespace megatron
